package protocol

// LivingOnes is a visibility query for the long-lived workflows, running or closed: all but previews. Living is the query for the running
// ones.
const (
	LivingOnes = "WorkflowType IN ('" + ServiceWorkflow + "','" + ApplicationWorkflow + "','" + RuntimeWorkflow + "','" + InstallationWorkflow + "')"
	Living     = LivingOnes + " AND ExecutionStatus = 'Running'"
)
