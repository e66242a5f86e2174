"""From NodeClaims to instances: orders, launch marks, CreateFleet, launch templates, user data."""
