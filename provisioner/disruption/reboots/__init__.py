"""A broken node is rebooted: what comes next (`steps`, pure), and who does it (`controller`)."""
