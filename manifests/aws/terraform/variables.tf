variable "cluster_name" {
  description = "Name of the EKS cluster, 46 characters at most because names of roles are made of it."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-Za-z][A-Za-z0-9_-]{0,45}$", var.cluster_name))
    error_message = "A cluster name begins with a letter or digit, has letters, digits, - and _, and here at most 46 of them."
  }
}

variable "namespace" {
  description = "Namespace of the controllers."
  type        = string
  default     = "dovetail-system"
}

variable "service_account" {
  description = "ServiceAccount that the controllers run under."
  type        = string
  default     = "dovetail-provisioner"
}

variable "pod_identity" {
  description = "Whether EKS Pod Identity gives the role to the ServiceAccount; false for IRSA, see README.md."
  type        = bool
  default     = true
}

variable "access_entry" {
  description = "How nodes may join the cluster: EC2_WINDOWS admits Linux and Windows nodes, none leaves it to aws-auth."
  type        = string
  default     = "EC2_LINUX"

  validation {
    condition     = contains(["EC2_LINUX", "EC2_WINDOWS", "none"], var.access_entry)
    error_message = "One of EC2_LINUX, EC2_WINDOWS and none."
  }
}

variable "create_spot_service_linked_role" {
  description = "Whether to create the role that EC2 Spot works under: true once per account, and only where it does not exist."
  type        = bool
  default     = false
}

variable "custom_parameter_path" {
  description = "Path of your own SSM parameters that hold AMI IDs, without leading or trailing slash; empty for none."
  type        = string
  default     = ""
}

variable "volume_key_arn" {
  description = "ARN of your own KMS key that encrypts volumes of nodes; empty for none."
  type        = string
  default     = ""
}

variable "node_reboot" {
  description = "Whether nodes with GPU errors are rebooted (AWS feature gate RebootForRepair)."
  type        = bool
  default     = false
}

variable "self_check" {
  description = "Whether the controllers' role may simulate its own policies, for `dovetail aws check` inside the cluster."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of everything that is created."
  type        = map(string)
  default     = {}
}
