# With a customer key: Google's own account of each service uses the key.
data "google_project" "this" {
  count = var.kms_key == null ? 0 : 1

  project_id = var.project
  depends_on = [google_project_service.used]
}

data "google_storage_project_service_account" "this" {
  count = var.kms_key == null ? 0 : 1

  project    = var.project
  depends_on = [google_project_service.used]
}

locals {
  agents = var.kms_key == null ? {} : {
    storage   = data.google_storage_project_service_account.this[0].email_address
    dataflow  = "service-${data.google_project.this[0].number}@dataflow-service-producer-prod.iam.gserviceaccount.com"
    compute   = "service-${data.google_project.this[0].number}@compute-system.iam.gserviceaccount.com"
    artifacts = "service-${data.google_project.this[0].number}@gcp-sa-artifactregistry.iam.gserviceaccount.com"
  }
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = local.agents

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:${each.value}"

  depends_on = [google_project_service.used]
}
