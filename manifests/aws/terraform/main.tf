data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

locals {
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region
  account   = data.aws_caller_identity.current.account_id

  wanted = {
    CustomParameters = var.custom_parameter_path != ""
    VolumeEncryption = var.volume_key_arn != ""
    NodeReboot       = var.node_reboot
    SelfCheck        = var.self_check
  }
  policies = merge(
    local.default_policies,
    { for name, text in local.optional_policies : name => text if local.wanted[name] },
  )

  events = {
    SpotInterruption                = { source = "aws.ec2", detail_type = "EC2 Spot Instance Interruption Warning" }
    Rebalance                       = { source = "aws.ec2", detail_type = "EC2 Instance Rebalance Recommendation" }
    InstanceStateChange             = { source = "aws.ec2", detail_type = "EC2 Instance State-change Notification" }
    ScheduledChange                 = { source = "aws.health", detail_type = "AWS Health Event" }
    CapacityReservationInterruption = { source = "aws.ec2", detail_type = "EC2 Capacity Reservation Instance Interruption Warning" }
  }
}

# ---- nodes ----

data "aws_iam_policy_document" "node_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

resource "aws_iam_role" "node" {
  name               = "KarpenterNodeRole-${var.cluster_name}"
  description        = "What nodes of the cluster may do"
  assume_role_policy = data.aws_iam_policy_document.node_trust.json
  tags               = var.tags
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset([
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
  ])

  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.value}"
}

resource "aws_eks_access_entry" "node" {
  count = var.access_entry == "none" ? 0 : 1

  cluster_name  = var.cluster_name
  principal_arn = aws_iam_role.node.arn
  type          = var.access_entry
  tags          = var.tags
}

resource "aws_iam_service_linked_role" "spot" {
  count = var.create_spot_service_linked_role ? 1 : 0

  aws_service_name = "spot.amazonaws.com"
  description      = "What EC2 Spot works under"
}

# ---- controllers ----

resource "aws_iam_policy" "controller" {
  for_each = local.policies

  name   = "KarpenterController${each.key}Policy-${var.cluster_name}"
  policy = each.value
  tags   = var.tags
}

data "aws_iam_policy_document" "controller_trust" {
  statement {
    actions = ["sts:AssumeRole", "sts:TagSession"]

    principals {
      type        = "Service"
      identifiers = ["pods.eks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/eks-cluster-name"
      values   = [var.cluster_name]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/kubernetes-namespace"
      values   = [var.namespace]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/kubernetes-service-account"
      values   = [var.service_account]
    }
  }
}

resource "aws_iam_role" "controller" {
  count = var.pod_identity ? 1 : 0

  name               = "${var.cluster_name}-karpenter"
  description        = "What the node autoscaler may do"
  assume_role_policy = data.aws_iam_policy_document.controller_trust.json
  tags               = var.tags
}

resource "aws_iam_role_policy_attachment" "controller" {
  for_each = var.pod_identity ? local.policies : {}

  role       = aws_iam_role.controller[0].name
  policy_arn = aws_iam_policy.controller[each.key].arn
}

resource "aws_eks_pod_identity_association" "controller" {
  count = var.pod_identity ? 1 : 0

  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.controller[0].arn
  tags            = var.tags
}

# ---- interruptions ----

resource "aws_sqs_queue" "interruption" {
  name                      = var.cluster_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

data "aws_iam_policy_document" "queue" {
  statement {
    sid       = "AllowEvents"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.interruption.arn]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com", "sqs.amazonaws.com"]
    }

    # no rule of another account may send messages that end instances
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }
  }

  statement {
    sid       = "DenyWithoutTLS"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.interruption.arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.id
  policy    = data.aws_iam_policy_document.queue.json
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each = local.events

  name_prefix   = "${substr(var.cluster_name, 0, 20)}-"
  description   = "${each.key} of ${var.cluster_name}"
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.detail_type] })
  tags          = var.tags
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = local.events

  rule      = aws_cloudwatch_event_rule.interruption[each.key].name
  target_id = "KarpenterInterruptionQueueTarget"
  arn       = aws_sqs_queue.interruption.arn
}
