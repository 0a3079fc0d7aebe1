// Package ecsfake simulates Amazon ECS for tests. It is an HTTP server that implements the API of ECS (awsJson1.1) for the real
// aws-sdk-go-v2 client. Services roll, fail and drain on a clock that moves only on command. It needs no AWS account, and it was
// written without one: it follows AWS's documentation, and this text lists the gaps.
//
// References in the comments are short: "guide X" is https://docs.aws.amazon.com/AmazonECS/latest/developerguide/X.html,
// "API X" is https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_X.html, whose text is also in the SDK's comments.
// "Not documented" marks our own choices.
//
// What CreateService, UpdateService and RunTask refuse is a table, refusals.go and its neighbours: each row names the page, or the public
// threads that quote AWS's answer.
//
// Some pages say less than a test needs: how long things take, the text of most errors, the order of a list. Then the wording and
// the numbers are ours. Tests that depend on them prove nothing about AWS.
//
// # Modelled
//
//   - The wire: header X-Amz-Target, signed requests of the server's region (signatures are not verified), errors as
//     400 or 500 with __type. Numbers and booleans that are zero are left out of answers; Go clients cannot tell. Other
//     clients of the SDK than those of Client should use HTTPClient.
//   - Clusters: create, describe, list, delete (API CreateCluster, DeleteCluster).
//   - Task definitions: revisions that only count up, tags, ACTIVE, INACTIVE and DELETE_IN_PROGRESS, defaults that AWS
//     fills in, numbers out of "1 vCPU" and "1 GB", Fargate's table of sizes (API RegisterTaskDefinition,
//     DeregisterTaskDefinition, DeleteTaskDefinitions; guide fargate-tasks-services).
//   - Services: REPLICA and DAEMON, Fargate and EC2, launch types and capacity providers, one name per cluster, client
//     tokens, ACTIVE, DRAINING and INACTIVE, which updates start a deployment and which do not (API CreateService,
//     UpdateService, DeleteService; guide update-service-parameters).
//   - Rolling deployments: PRIMARY together with ACTIVE, minimumHealthyPercent and maximumPercent, rolloutState with its reason,
//     failedTasks, the newest 100 events (guide deployment-type-ecs, API Deployment, API DeploymentConfiguration).
//   - The circuit breaker with its thresholds, deployment alarms, their rollbacks (guide deployment-circuit-breaker,
//     deployment-alarm-failure). A rollback either makes the last completed deployment PRIMARY again, with its id, or
//     starts a new deployment of its configuration: the documentation allows both readings, see Rollback.
//   - Service deployments and revisions, and stopping one (guide service-deployment, service-revision,
//     stop-service-deployment).
//   - BLUE_GREEN, LINEAR and CANARY by their lifecycle stages, without traffic: the green tasks start, hooks are called,
//     weights move, it bakes, and the blue tasks are cleaned up (guides blue-green-deployment-how-it-works,
//     canary-deployment, deployment-lifecycle-hooks, pause-lifecycle-hooks).
//   - Tasks: PROVISIONING, PENDING, RUNNING, DEACTIVATING, STOPPING, DEPROVISIONING, STOPPED (guide
//     task-lifecycle-explanation), health, exit codes, reasons (guide stopped-task-error-codes), an hour of memory
//     (API DescribeTasks), one-off tasks (API RunTask, StopTask) and their logs, which CloudWatch Logs' GetLogEvents reads.
//   - Eventual consistency (API RunTask), limits of ten, twenty and a hundred per call, paging, token buckets (guide
//     request-throttling).
//   - Deployment controllers CODE_DEPLOY and EXTERNAL, only so far that a client can detect that it must not roll their services.
//
// # Not modelled
//
//   - Placement, capacity and its arithmetic: an instance has unlimited capacity. Capacity providers are names.
//   - Load balancers, Service Connect, Cloud Map, VPC Lattice, volumes and secrets: passed through; a task behind a load
//     balancer is healthy when Behaviour says so. CloudWatch, EventBridge, IAM and STS are other services.
//   - Task sets, early success criteria, timeouts of lifecycle hooks, task protection, ECS Exec, express
//     services, managed daemons and gateways, capacity provider calls: refused as not modelled, not ignored, where a
//     request could ask for them.
//   - Unhealthy tasks of a completed deployment are stopped before they are replaced; AWS starts the replacement first
//     where maximumPercent allows it (guide ecs_services).
//   - Availability zones and their rebalancing; the order in which tasks of one deployment are stopped.
//   - Service-linked roles, permissions, and account settings: the lever AccessDenied simulates all of them.
//   - A write is never late for another write: UpdateService right after CreateService works, however long reads lag.
package ecsfake
