package protocol

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// RequestMeta is part of every verb's payload. By is the caller's stated identity (workflow code does not see the caller). RequestID makes
// the verb idempotent, across continue-as-new too.
type RequestMeta struct {
	By        string `json:"by"`
	RequestID string `json:"requestId,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// To are the services of the application that the same request, with the same token, is sent to; none: only the receiver. By their first
	// names.
	To []string `json:"to,omitempty"`
	// Token is an OIDC ID token that proves the caller's identity. By is then taken from it. Tokens are visible in the workflow's history: use
	// short-lived ones, issued for this audience.
	Token string `json:"token,omitempty"`
}

// ReleaseRequest requests a release of a version of the service. ID names the release. The payload of a release of several services of an
// application is JointRequest (B8).
type ReleaseRequest struct {
	RequestMeta
	Version string `json:"version"`
	ID      string `json:"id,omitempty"`
	// Aspect is the aspect whose values are released, instead of a version (B5).
	Aspect string `json:"aspect,omitempty"`
	// Parameters apply to all channels, ChannelParameters to one each; later wins.
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
	// Strategy is how it follows other releases, instead of the service's own strategy: latest, train or immediate (B3).
	Strategy string `json:"strategy,omitempty"`
}

// ReleaseAnswer identifies an accepted release.
type ReleaseAnswer struct {
	ID          string `json:"id"`
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
	// Repeated: this request id was accepted before; this is the answer from that time.
	Repeated bool     `json:"repeated,omitempty"`
	Note     string   `json:"note,omitempty"`
	Next     []string `json:"next,omitempty"` // what happens next, in lines for people
}

// ScopeRequest is the payload of pause, resume, refresh and restart. An empty channel is the whole service.
type ScopeRequest struct {
	RequestMeta
	Channel string `json:"channel,omitempty"`
}

// RolloutRequest is the payload of promote and abort (H3). An empty channel is every channel that can have a rollout. Full, for promote: it
// skips all remaining steps.
type RolloutRequest struct {
	RequestMeta
	Channel string `json:"channel,omitempty"`
	Full    bool   `json:"full,omitempty"`
}

// CancelRequest is the payload of cancel (A18). It selects a release by Version, or, of all that wait, those released before OlderThan, or
// all but Except. Exactly one is set. Of several releases of a version it selects the oldest unfinished one. Terminate: running work for
// the release gets no time to finish.
type CancelRequest struct {
	RequestMeta
	Version   string `json:"version,omitempty"`
	OlderThan string `json:"olderThan,omitempty"`
	Except    string `json:"except,omitempty"`
	Channel   string `json:"channel,omitempty"`
	Terminate bool   `json:"terminate,omitempty"`
}

// RollbackRequest is the payload of rollback (A22): a VersionRequest. Without a version it selects the newest release that entered any of
// the channels. WhilePaused: also if its channel, or the service, is paused.
type RollbackRequest struct {
	RequestMeta
	Version     string `json:"version,omitempty"`
	Channel     string `json:"channel,omitempty"`
	WhilePaused bool   `json:"whilePaused,omitempty"`
}

// VersionRequest is the payload of retry. An empty channel is every channel concerned. Version is a version or full version. Of several
// releases of it, retry and rollback select the newest.
type VersionRequest struct {
	RequestMeta
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// DeleteRequest is the payload of delete (A24). A channel stays declared and empty until it is restarted. Without a channel it is for the
// whole service, which must no longer be declared.
type DeleteRequest struct {
	RequestMeta
	Channel string `json:"channel,omitempty"`
}

// Answer is the answer of every verb without a result of its own: one line for people.
type Answer struct {
	Message string   `json:"message"`
	Next    []string `json:"next,omitempty"` // what happens next, in lines for people
}

// PublishRequest makes a compiled incarnation the newest of its application. The incarnation, the manifest (service → spec digest) and the
// specs are already in the store.
type PublishRequest struct {
	RequestMeta
	Hash     string   `json:"hash"`     // of the incarnation
	Manifest string   `json:"manifest"` // digest of the manifest in the store
	Services int      `json:"services"` // not read: the store has the number
	Store    string   `json:"store"`    // URL the publisher wrote to
	Origin   Origin   `json:"origin"`
	Causes   []string `json:"causes,omitempty"`
	Commits  string   `json:"commits,omitempty"` // digest of the Commits in the store; "": the origin has none
	// After is the newest incarnation that the publisher compiled against. If another one is the newest, the publication is refused. Zero: not
	// checked.
	After    int64 `json:"after,omitempty"`
	TakeOver bool  `json:"takeOver,omitempty"`
	// Missing are services whose workflows are gone. They are started again, whether or not anything changed.
	Missing []string `json:"missing,omitempty"`
	// Runtimes describes changes of runtimes, for the audit trail: "changed runtime eks-eu: kubernetes.context". With any, the publication is
	// not unchanged.
	Runtimes []string `json:"runtimes,omitempty"`
}

// Limits of PublishRequest.Runtimes: how many, and the bytes of each.
const (
	MaxRuntimeChanges = 10
	MaxRuntimeChange  = 300
)

// Origin is the source of an application's configuration.
type Origin struct {
	Path   string `json:"path"`
	Commit string `json:"commit,omitempty"`
	Dirty  bool   `json:"dirty,omitempty"`
}

// Hex returns the commit, or a digest without the name of its algorithm.
func (o Origin) Hex() string { return o.Commit[strings.Index(o.Commit, ":")+1:] }

// PublishAnswer names the incarnation that is now the newest.
type PublishAnswer struct {
	Incarnation int64  `json:"incarnation"`
	Hash        string `json:"hash"`
	Unchanged   bool   `json:"unchanged,omitempty"` // it was already the newest
	// Pinned is the incarnation that services are pinned to, so that this one waits; 0: no pin.
	Pinned int64 `json:"pinned,omitempty"`
}

// ServicePublish notifies a Service that its spec changed (signal with start). An empty spec: the service is no longer declared.
type ServicePublish struct {
	Incarnation int64  `json:"incarnation"`
	Hash        string `json:"hash"`
	Spec        string `json:"spec,omitempty"` // digest in the store
	Store       string `json:"store"`
	By          string `json:"by"`
	Proven      bool   `json:"proven,omitempty"` // a token proved By
	Subject     string `json:"subject,omitempty"`
	// Order is its order among all notices of the application: it overrides no later notice.
	Order entities.NoticeOrder `json:"order,omitzero"`
}

// Notice is the incarnation in the store that the services of an application must use (G1). Services adopt it, whichever signal notified
// them.
type Notice struct {
	Order       entities.NoticeOrder `json:"order"`
	Incarnation Incarnation          `json:"incarnation"`
	// Pinned: even if a newer one is known (D15).
	Pinned bool `json:"pinned,omitempty"`
	// PinnedBy is who pinned to an older incarnation, and Rules the newest one, whose rules apply.
	PinnedBy *entities.Who `json:"pinnedBy,omitempty"`
	Rules    *RulesOf      `json:"rules,omitempty"`
}

// RulesOf is the newest incarnation of an application that is pinned to an older one.
type RulesOf struct {
	Number   int64  `json:"number"`
	Hash     string `json:"hash"`
	Manifest string `json:"manifest"`
}

// By returns who is responsible for what the notice changes: who pinned, or else who published.
func (n Notice) By() entities.Who {
	if n.PinnedBy != nil {
		return *n.PinnedBy
	}
	return entities.Who{Name: n.Incarnation.By, Proven: n.Incarnation.Proven, Subject: n.Incarnation.Subject}
}

// RulesHash is the hash of the incarnation whose rules apply.
func (n Notice) RulesHash() string {
	if n.Rules != nil {
		return n.Rules.Hash
	}
	return n.Incarnation.Hash
}

// rules is the manifest whose rules apply.
func (n Notice) rules() string {
	if n.Rules != nil {
		return n.Rules.Manifest
	}
	return n.Incarnation.Manifest
}

// Same reports whether two notices have the same content, at any time.
func (n Notice) Same(other Notice) bool {
	return n.Incarnation.Number == other.Incarnation.Number && n.Incarnation.Hash == other.Incarnation.Hash &&
		n.Incarnation.Manifest == other.Incarnation.Manifest && n.Pinned == other.Pinned &&
		n.rules() == other.rules() && n.By().Name == other.By().Name && n.By().Subject == other.By().Subject
}

// ApplicationStatus answers an Application's status query.
type ApplicationStatus struct {
	Schema       string             `json:"schema"` // converge.application/v1
	Application  string             `json:"application"`
	Newest       int64              `json:"newest"`
	Store        string             `json:"store"`
	Origin       Origin             `json:"origin"`
	Manifest     string             `json:"manifest"`     // the manifest that services should know
	Notified     int64              `json:"notified"`     // newest incarnation that all its services know
	NotifiedOf   string             `json:"notifiedOf"`   // manifest that all its services know
	Incarnations []Incarnation      `json:"incarnations"` // newest last; limited to the newest, the store has all
	Refused      []entities.Refusal `json:"refused,omitempty"`
	Pin          *ApplicationPin    `json:"pin,omitempty"`
	Pause        *entities.Pause    `json:"pause,omitempty"`
	Announcing   bool               `json:"announcing,omitempty"` // services are being notified that a pause began or ended
	Unmanaged    UnmanagedServices  `json:"unmanaged,omitempty"`  // unmanaged services
	Names        ServiceNames       `json:"names,omitempty"`
	Releases     []JointStatus      `json:"releases,omitempty"` // the last joint releases, oldest first
	Problem      string             `json:"problem,omitempty"`
	// Readers are the people and groups ("group:sre") that may read the application through a server; none: everybody.
	Readers []string `json:"readers,omitempty"`
}

// Current returns the number of the incarnation in force: the pinned one, or the newest.
func (s ApplicationStatus) Current() int64 {
	for _, i := range s.Incarnations {
		if i.Manifest == s.Manifest && s.Manifest != "" {
			return i.Number
		}
	}
	return s.Newest
}

// Incarnation is one published snapshot in an application's sequence.
type Incarnation struct {
	Number   int64     `json:"number"`
	Hash     string    `json:"hash"`
	Manifest string    `json:"manifest"`
	Services int       `json:"services"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Proven   bool      `json:"proven,omitempty"` // a token proved By
	Subject  string    `json:"subject,omitempty"`
	Origin   Origin    `json:"origin"`
	Causes   []string  `json:"causes,omitempty"`
	Commits  string    `json:"commits,omitempty"` // digest of the Commits in the store; "": they are not known
}
