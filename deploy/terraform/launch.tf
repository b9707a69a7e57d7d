# The launch request. Nothing here needs the provider, so that it can be evaluated alone.
locals {
  metadata     = jsondecode(file("${path.module}/../metadata.json"))
  input_bucket = regex("^gs://([^/]+)", var.input)[0]
  names = {
    work     = "${var.project}-${var.name}-work"
    datasets = "${var.project}-${var.name}-datasets"
    worker   = "${var.name}-worker@${var.project}.iam.gserviceaccount.com"
  }

  # Region and account of jobs; also the defaults of a manual launch.
  environment = { for name, value in {
    serviceAccountEmail = local.names.worker
    tempLocation        = "gs://${local.names.work}/temp"
    stagingLocation     = "gs://${local.names.work}/staging"
    maxWorkers          = var.max_workers
    machineType         = var.machine_type
    subnetwork          = var.subnetwork
    ipConfiguration     = var.subnetwork == null ? null : "WORKER_IP_PRIVATE"
    kmsKeyName          = var.kms_key
  } : name => value if value != null }

  container_spec = {
    image              = var.image
    sdkInfo            = { language = "PYTHON" }
    metadata           = local.metadata
    defaultEnvironment = local.environment
  }
  # Not the object that make template writes to the same folder.
  template_object = "templates/${var.name}-scheduled.json"

  # A new version, or a complete new dataset that replaces the previous one. --writer=shards reuses the finished shards
  # of a failed job, and writes the same bytes from the same input.
  publication = { for name, value in {
    dataset_version = var.versions ? "auto" : null
    keep_versions   = var.versions ? var.keep_versions : null
    overwrite       = var.versions ? null : "true"
    writer          = "shards"
  } : name => tostring(value) if value != null }

  parameters = merge(
    local.publication,
    var.parameters,
    {
      input               = var.input
      output              = "gs://${local.names.datasets}/${var.output_folder}"
      sdk_container_image = var.image
    },
  )
  unknown_parameters = setsubtract(keys(local.parameters), [for one in local.metadata.parameters : one.name])

  launch = {
    launchParameter = {
      # Always the same name: Dataflow refuses a second active job with it, so runs never overlap.
      jobName              = var.name
      containerSpecGcsPath = "gs://${local.names.work}/${local.template_object}"
      parameters           = local.parameters
      environment          = local.environment
    }
  }
}
