# What a launch is made of, and nothing that needs the provider: it can be evaluated by itself.
locals {
  metadata     = jsondecode(file("${path.module}/../metadata.json"))
  input_bucket = regex("^gs://([^/]+)", var.input)[0]
  names = {
    work     = "${var.project}-${var.name}-work"
    datasets = "${var.project}-${var.name}-datasets"
    worker   = "${var.name}-worker@${var.project}.iam.gserviceaccount.com"
  }

  # Where jobs run, and as whom; also the defaults of a launch by hand.
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
  # Apart from what make template writes beside it.
  template_object = "templates/${var.name}-scheduled.json"

  # A version beside those before it, or the dataset replaced once the new one is whole. --writer=shards goes on with
  # what a failed job finished, and makes the same bytes of the same input.
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
      # Always the same name: Dataflow refuses a second active job of it, so runs never overlap.
      jobName              = var.name
      containerSpecGcsPath = "gs://${local.names.work}/${local.template_object}"
      parameters           = local.parameters
      environment          = local.environment
    }
  }
}
