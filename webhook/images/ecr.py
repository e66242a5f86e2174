"""`python -m webhook.images.ecr REGION`: prints a token for ECR of a region and ends, so that boto3 leaves no memory behind."""

import sys

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

TIMEOUT_SECONDS = 5


def main(region: str) -> int:
    """Print the token; the exit status says whether there is one, standard error why not."""
    config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"total_max_attempts": 2})
    try:
        answer = boto3.client("ecr", region_name=region, config=config).get_authorization_token()
        sys.stdout.write(answer["authorizationData"][0]["authorizationToken"])
    except (BotoCoreError, ClientError, LookupError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
