"""EC2: instances launched with boto3, and all that has to be known before and after."""
