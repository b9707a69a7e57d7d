resource "google_artifact_registry_repository" "images" {
  location      = var.region
  repository_id = var.name
  description   = "Images of recordmill, for launcher and workers."
  format        = "DOCKER"
  kms_key_name  = var.kms_key

  # Templates in use name recent images.
  cleanup_policies {
    id     = "keep-newest"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "7776000s"
    }
  }

  depends_on = [google_project_service.used, google_kms_crypto_key_iam_member.agents]
}
