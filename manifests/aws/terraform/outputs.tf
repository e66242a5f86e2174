output "node_role" {
  description = "For `role` of an EC2NodeClass."
  value       = aws_iam_role.node.name
}

output "interruption_queue" {
  description = "For INTERRUPTION_QUEUE."
  value       = aws_sqs_queue.interruption.name
}

output "controller_policies" {
  description = "ARNs by name, to attach to your own role (IRSA)."
  value       = { for name, policy in aws_iam_policy.controller : name => policy.arn }
}
