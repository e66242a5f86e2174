"""From NodeClaims to instances: orders, launch marks, CreateFleet, launch templates, user data.

Equal orders share one CreateFleet. Launch marks on the claims find the instances again after a crash. `create` never waits: the provider calls back.

Each part has the lock of what it owns: `launch_book` the claims and their answers, `mark_book` the attempts, `fleet_launch` what holds lanes back.
`order_builder` makes their orders, `launch_recovery` goes on with what was interrupted, `launcher` is what controllers ask.
"""
