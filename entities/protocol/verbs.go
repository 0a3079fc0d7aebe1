package protocol

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Act is what every verb's payload carries. By is the caller's stated identity (workflow code
// does not see the caller); RequestID makes the verb idempotent, across continue-as-new too.
type Act struct {
	By        string `json:"by"`
	RequestID string `json:"requestId,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Token is an OIDC ID token that proves who asks; By is then taken from it. Tokens are seen in the
	// workflow's history: use short-lived ones made for this audience.
	Token string `json:"token,omitempty"`
}

// ReleaseRequest asks that a version of the service goes out. ID names the release; of one over several services of an
// application, JointRequest is the payload (B8).
type ReleaseRequest struct {
	Act
	Version string `json:"version"`
	ID      string `json:"id,omitempty"`
	// Aspect that values are released of, instead of a version (B5).
	Aspect string `json:"aspect,omitempty"`
	// Parameters apply to all channels, ChannelParameters to one each; later wins.
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
	// Strategy by which it follows other releases, instead of that of the service: latest, train or immediate (B3).
	Strategy string `json:"strategy,omitempty"`
}

// ReleaseAnswer is what an accepted release is known by.
type ReleaseAnswer struct {
	ID          string `json:"id"`
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
	// Repeated: this request id was accepted before; the answer is the one given then.
	Repeated bool   `json:"repeated,omitempty"`
	Note     string `json:"note,omitempty"`
}

// ScopeRequest is the payload of pause, resume, refresh and restart. An empty channel is the whole service.
type ScopeRequest struct {
	Act
	Channel string `json:"channel,omitempty"`
}

// RolloutRequest is the payload of promote and abort (H3). An empty channel is wherever a rollout can be. Full, of promote: all
// steps that are left are skipped.
type RolloutRequest struct {
	Act
	Channel string `json:"channel,omitempty"`
	Full    bool   `json:"full,omitempty"`
}

// CancelRequest is the payload of cancel (A18): a release by Version, or, of all that wait, those that were released before
// OlderThan, or all but Except. One of them is given. Of several releases of a version the oldest that is not over is meant.
// Terminate: what runs for the release is given no time to end by itself.
type CancelRequest struct {
	Act
	Version   string `json:"version,omitempty"`
	OlderThan string `json:"olderThan,omitempty"`
	Except    string `json:"except,omitempty"`
	Channel   string `json:"channel,omitempty"`
	Terminate bool   `json:"terminate,omitempty"`
}

// RollbackRequest is the payload of rollback (A22): a VersionRequest. No version is the newest release that entered any of
// the channels. WhilePaused: also where its channel, or the service, is paused.
type RollbackRequest struct {
	Act
	Version     string `json:"version,omitempty"`
	Channel     string `json:"channel,omitempty"`
	WhilePaused bool   `json:"whilePaused,omitempty"`
}

// VersionRequest is the payload of retry. An empty channel is every channel that it concerns. Version is a version or full
// version; of several releases of it, retry means the newest, and so does rollback.
type VersionRequest struct {
	Act
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// DeleteRequest is the payload of delete (A24). A channel stays declared and empty until it is restarted; none: the service, which must be
// declared no longer.
type DeleteRequest struct {
	Act
	Channel string `json:"channel,omitempty"`
}

// Answer is what every verb without a result of its own answers: one line for a person.
type Answer struct {
	Message string `json:"message"`
}

// PublishRequest makes a compiled incarnation the newest of its application. The incarnation, the
// manifest (service → spec digest) and the specs are already in the store.
type PublishRequest struct {
	Act
	Hash     string   `json:"hash"`     // of the incarnation
	Manifest string   `json:"manifest"` // digest of the manifest in the store
	Services int      `json:"services"`
	Store    string   `json:"store"` // URL the publisher wrote to
	Origin   Origin   `json:"origin"`
	Causes   []string `json:"causes,omitempty"`
	Commits  string   `json:"commits,omitempty"` // digest of the Commits in the store; "": where it comes from names none
	// After is the newest incarnation the publisher compiled against; another one being newest
	// refuses the publication. Zero: not checked.
	After    int64 `json:"after,omitempty"`
	TakeOver bool  `json:"takeOver,omitempty"`
	// Missing are services whose workflows are gone: they are started again, whether anything changed or not.
	Missing []string `json:"missing,omitempty"`
	// Identity and Grants of the application: who may pause and pin all of it.
	Identity *entities.Identity `json:"identity,omitempty"`
	Grants   []entities.Grant   `json:"grants,omitempty"`
}

// Origin is where an application's configuration comes from.
type Origin struct {
	Path   string `json:"path"`
	Commit string `json:"commit,omitempty"`
	Dirty  bool   `json:"dirty,omitempty"`
}

// Hex is the commit, or a digest without the name of its algorithm.
func (o Origin) Hex() string { return o.Commit[strings.Index(o.Commit, ":")+1:] }

// PublishAnswer names the incarnation that is newest now.
type PublishAnswer struct {
	Incarnation int64  `json:"incarnation"`
	Hash        string `json:"hash"`
	Unchanged   bool   `json:"unchanged,omitempty"` // it was already the newest
	// Pinned is the incarnation that services stay at, so that this one waits; 0: they do not.
	Pinned int64 `json:"pinned,omitempty"`
}

// ServicePublish notifies a Service that its spec changed (signal with start). An empty spec: the
// service is no longer declared.
type ServicePublish struct {
	Incarnation int64  `json:"incarnation"`
	Hash        string `json:"hash"`
	Spec        string `json:"spec,omitempty"` // digest in the store
	Store       string `json:"store"`
	By          string `json:"by"`
	Proven      bool   `json:"proven,omitempty"` // By is who a token proved
	Subject     string `json:"subject,omitempty"`
	// Pinned: it is taken over though a newer one is known (D15). Order is that of the notice among all of the
	// application: nothing overrides what came later. At is when notifying began.
	Pinned bool                 `json:"pinned,omitempty"`
	Order  entities.NoticeOrder `json:"order,omitzero"`
	At     time.Time            `json:"at,omitzero"`
}

// Notice is what the services of an application are to go by, as the store has it (G1): whatever signal says so, this is what
// they take over.
type Notice struct {
	Order       entities.NoticeOrder `json:"order"`
	Incarnation Incarnation          `json:"incarnation"`
	// Pinned: though a newer one is known (D15).
	Pinned bool `json:"pinned,omitempty"`
}

// Same tells whether two notices say the same, whenever that was.
func (n Notice) Same(other Notice) bool {
	return n.Incarnation.Number == other.Incarnation.Number && n.Incarnation.Hash == other.Incarnation.Hash &&
		n.Incarnation.Manifest == other.Incarnation.Manifest && n.Pinned == other.Pinned
}

// ApplicationStatus answers an Application's status query.
type ApplicationStatus struct {
	Schema       string             `json:"schema"` // converge.application/v1
	Application  string             `json:"application"`
	Newest       int64              `json:"newest"`
	Store        string             `json:"store"`
	Origin       Origin             `json:"origin"`
	Manifest     string             `json:"manifest"`     // what services should know
	Notified     int64              `json:"notified"`     // newest incarnation that all its services know
	NotifiedOf   string             `json:"notifiedOf"`   // manifest that all its services know
	Incarnations []Incarnation      `json:"incarnations"` // newest last; a bounded tail, the store has all
	Refused      []entities.Refusal `json:"refused,omitempty"`
	Pin          *ApplicationPin    `json:"pin,omitempty"`
	Pause        *entities.Pause    `json:"pause,omitempty"`
	Announcing   bool               `json:"announcing,omitempty"` // that a pause began or ended, to services
	Unmanaged    UnmanagedServices  `json:"unmanaged,omitempty"`  // services that are kept down
	Names        ServiceNames       `json:"names,omitempty"`
	Releases     []JointStatus      `json:"releases,omitempty"` // the last joint releases, oldest first
	Problem      string             `json:"problem,omitempty"`
}

// Incarnation is one published snapshot in an application's sequence.
type Incarnation struct {
	Number   int64     `json:"number"`
	Hash     string    `json:"hash"`
	Manifest string    `json:"manifest"`
	Services int       `json:"services"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Proven   bool      `json:"proven,omitempty"` // By is who a token proved
	Subject  string    `json:"subject,omitempty"`
	Origin   Origin    `json:"origin"`
	Causes   []string  `json:"causes,omitempty"`
	Commits  string    `json:"commits,omitempty"` // digest of the Commits in the store; "": they are not known
}
