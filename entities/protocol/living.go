package protocol

// LivingOnes is a query for the workflows that live for ever, all but previews, whether they run or have been ended; Living
// for those that run.
const (
	LivingOnes = "WorkflowType IN ('" + ServiceWorkflow + "','" + ApplicationWorkflow + "','" + RuntimeWorkflow + "','" + InstallationWorkflow + "')"
	Living     = LivingOnes + " AND ExecutionStatus = 'Running'"
)
