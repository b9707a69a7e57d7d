# Files that jobs, builds and the template need to start. Only templates/ must be kept.
resource "google_storage_bucket" "work" {
  name                        = local.names.work
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Otherwise temporary files would be stored, and paid for, after their deletion.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  # Longer than any job: Dataflow reads its staged files until the job ends.
  lifecycle_rule {
    condition {
      age            = 14
      matches_prefix = ["builds/", "staging/", "temp/"]
    }
    action {
      type = "Delete"
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.used, google_kms_crypto_key_iam_member.agents]
}

resource "google_storage_bucket" "datasets" {
  name                        = local.names.datasets
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Uploads that a worker did not finish.
  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.used, google_kms_crypto_key_iam_member.agents]
}
