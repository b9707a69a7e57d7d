# The key of the customer, if there is one, is used by Google's own accounts for each service.
data "google_storage_project_service_account" "this" {
  project = var.project
}

locals {
  agents = {
    storage   = data.google_storage_project_service_account.this.email_address
    dataflow  = "service-${data.google_project.this.number}@dataflow-service-producer-prod.iam.gserviceaccount.com"
    compute   = "service-${data.google_project.this.number}@compute-system.iam.gserviceaccount.com"
    artifacts = "service-${data.google_project.this.number}@gcp-sa-artifactregistry.iam.gserviceaccount.com"
  }
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = var.kms_key == null ? {} : local.agents

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:${each.value}"

  depends_on = [google_project_service.used]
}
