package protocol

// LongLivedQuery is a visibility query for the long-lived workflows, running or closed: all but previews. RunningQuery is the query for the
// running ones, without those that an operator has paused. OpenQuery has both. PausedQuery is the query for the open ones that an operator
// has paused, or an activity of which: older servers refuse it, because they do not have its search attribute, AttrPaused.
const (
	LongLivedQuery = "WorkflowType IN ('" + ServiceWorkflow + "','" + ApplicationWorkflow + "','" + RuntimeWorkflow + "','" + InstallationWorkflow + "')"
	RunningQuery   = LongLivedQuery + " AND ExecutionStatus = 'Running'"
	OpenQuery      = LongLivedQuery + " AND CloseTime IS NULL"
	PausedQuery    = OpenQuery + " AND " + AttrPaused + " IS NOT NULL"

	AttrPaused = "TemporalPauseInfo" // a search attribute that the server sets
)
