package apiv1

// The paths of an application and of a service.
const (
	applicationPath = "/applications/{application}"
	servicePath     = applicationPath + "/services/{service}"
)

// ApplicationPath names an application in a path.
type ApplicationPath struct {
	Application string `path:"application" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of an application" doc:"Name of the application"`
}

// ServicePath names a service in a path, by its current name.
type ServicePath struct {
	ApplicationPath
	Service string `path:"service" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of a service" doc:"Name of the service"`
}

// RuntimePath names a runtime in a path.
type RuntimePath struct {
	Runtime string `path:"runtime" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" patternDescription:"the name of a runtime" doc:"Name of the runtime"`
}

// ChannelQuery selects a release channel.
type ChannelQuery struct {
	Channel string `query:"channel" maxLength:"63" doc:"Only this release channel"`
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Number of items in the page"`
	After string `query:"after" maxLength:"4096" doc:"The value of next in the page before; empty: the first page"`
}
