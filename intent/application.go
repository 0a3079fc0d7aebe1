package intent

// Application is the administrative domain: it owns the release channels and every Service in the
// same directory and below. There is one per directory tree.
type Application struct {
	Header
	// What the application is, for people.
	Description string `json:"description,omitempty"`
	// The places that services go to, and the rules for entering each. Their order is only that of
	// display; preconditions order them.
	ReleaseChannels []ReleaseChannel `json:"releaseChannels"`
}

// Planned names the fields that later versions accept.
func (Application) Planned() []string {
	return []string{"protections", "extensions", "setupCallback", "aggregator", "maestro", "pins", "approvals", "imports"}
}

// ReleaseChannel is a named place that services go to: staging, prod-us.
type ReleaseChannel struct {
	// The channel's name, unique in the application.
	Name Name `json:"name"`
	// Labels that selectors match, and that payloads may use as ${{ labels.KEY }}.
	Labels map[string]string `json:"labels,omitempty"`
	// The runtimes that services of this channel may run on.
	Runtimes []RuntimeRef `json:"runtimes"`
	// Values that payloads in this channel may use as ${{ constants.KEY }}.
	Constants map[string]string `json:"constants,omitempty"`
	// What must hold before a release may enter this channel.
	Preconditions []Precondition `json:"preconditions,omitempty"`
}

// Planned names the fields that later versions accept.
func (ReleaseChannel) Planned() []string {
	return []string{"protections", "extensions", "postconditions", "renamedFrom", "onDelete", "description"}
}

// RuntimeRef names a runtime of a channel and the address there.
type RuntimeRef struct {
	// The name of a Runtime.
	Name Name `json:"name"`
	// The namespace, for runtimes that have them. It may use ${{ channel }}, ${{ service }},
	// ${{ application }}, ${{ labels.KEY }} and ${{ constants.KEY }}.
	Namespace string `json:"namespace,omitempty"`
}

// Precondition is one condition for entering a channel. Exactly one field is given.
type Precondition struct {
	// Passes once the release has succeeded in other channels.
	ReleaseChannelStable *ReleaseChannelStable `json:"releaseChannelStable,omitempty"`
}

// Planned names the fields that later versions accept.
func (Precondition) Planned() []string {
	return []string{"manualApproval", "sharedManualApproval", "protection", "allowedTimes", "dependsOn"}
}

// ReleaseChannelStable passes once the release has succeeded in a channel, or in all channels that
// a selector matches. One of the two is given. Once passed, it stays so for that release.
type ReleaseChannelStable struct {
	// The name of the channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Labels that a channel must all have.
	Selector map[string]string `json:"selector,omitempty"`
}
