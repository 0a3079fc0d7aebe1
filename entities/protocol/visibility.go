package protocol

// LongLivedQuery is a visibility query for the long-lived workflows, running or closed: all but previews. RunningQuery is the query for the
// running ones.
const (
	LongLivedQuery = "WorkflowType IN ('" + ServiceWorkflow + "','" + ApplicationWorkflow + "','" + RuntimeWorkflow + "','" + InstallationWorkflow + "')"
	RunningQuery   = LongLivedQuery + " AND ExecutionStatus = 'Running'"
)
