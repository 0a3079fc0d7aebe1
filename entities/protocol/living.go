package protocol

// Living is a query for the workflows that run and live for ever: all but previews.
const Living = "ExecutionStatus = 'Running' AND WorkflowType IN ('" +
	ServiceWorkflow + "','" + ApplicationWorkflow + "','" + RuntimeWorkflow + "','" + InstallationWorkflow + "')"
