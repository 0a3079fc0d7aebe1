// Package incarnation holds the compiled snapshot of an application: it renders the payloads of a version,
// derives the rules that services decide by, and says how two incarnations differ.
//
// It reads no files and knows neither where an incarnation came from nor where it is kept. Of intent it
// imports the names and versions of config, and nothing that compiles or stores.
package incarnation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Schema names the version of the incarnation document.
const Schema = "converge.incarnation/v1"

// Incarnation is an immutable compiled snapshot of one application: the rules of each service and
// what its payloads are made of. Its bytes are canonical JSON, and their hash is its name (D4, D5).
// Definitions of runtimes, secrets and numbers are not part of it.
type Incarnation struct {
	doc      Document
	bytes    []byte
	services map[string]*Service
	works    sync.Map // *plan.Work by channel, see Work
}

// Document is what an incarnation says, as its JSON has it.
type Document struct {
	Schema      string    `json:"schema"`
	Application string    `json:"application"`
	Description string    `json:"description,omitempty"`
	Channels    []Channel `json:"channels"` // in an order that respects conditions
	Services    []Service `json:"services"` // by name
	// Imports are the libraries whose channels and protections are among those above and below, as the application lists them.
	Imports []Import `json:"imports,omitempty"`

	Grants        []entities.Grant        `json:"grants,omitempty"`
	Identity      *entities.Identity      `json:"identity,omitempty"`
	Notifications []entities.Notification `json:"notifications,omitempty"`
}

// Import is a library by the content that it had.
type Import struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Digest  string `json:"digest"` // SHA-256 of the content, in hex
}

// Channel is a release channel.
type Channel struct {
	Name string `json:"name"`
	// RenamedFrom is the name before; Key is the first one, by which runtimes know the channel, where that is another one. Whoever
	// publishes says it, by what is newest (Follow).
	RenamedFrom string               `json:"renamedFrom,omitempty"`
	Key         string               `json:"key,omitempty"`
	Labels      map[string]string    `json:"labels,omitempty"`
	Constants   map[string]string    `json:"constants,omitempty"`
	Conditions  []entities.Condition `json:"conditions,omitempty"`
	NoRollback  bool                 `json:"noRollback,omitempty"`
	OnDelete    entities.OnDelete    `json:"onDelete,omitempty"`
	ReportOnly  bool                 `json:"reportOnly,omitempty"`
	Rollout     *entities.Rollout    `json:"rollout,omitempty"`
	Plan        *plan.Work           `json:"plan,omitempty"` // nil: nothing says that services are fitted together here
}

// Service is what all channels of a service share, and its instances.
type Service struct {
	Name string `json:"name"`
	// As of a channel; workflows and the store know a service by its first name, too.
	RenamedFrom      string                 `json:"renamedFrom,omitempty"`
	Key              string                 `json:"key,omitempty"`
	Description      string                 `json:"description,omitempty"`
	Version          string                 `json:"version,omitempty"`
	InitialVersion   string                 `json:"initialVersion,omitempty"`
	DeclaredAt       string                 `json:"declaredAt,omitempty"`
	ConfigChanges    entities.ConfigChanges `json:"configChanges"`
	ProgressDeadline Period                 `json:"progressDeadline"`
	Parameters       []Parameter            `json:"parameters,omitempty"`
	Aspects          []entities.Aspect      `json:"aspects,omitempty"`
	Files            map[string]string      `json:"files,omitempty"`    // path → content, of all channels
	Objects          map[string]ObjectList  `json:"objects,omitempty"`  // of each bundle that a channel names
	Remove           bool                   `json:"remove,omitempty"`   // when it is no longer declared
	AskGates         bool                   `json:"askGates,omitempty"` // before a rollback by hand
	NoRollbackBelow  string                 `json:"noRollbackBelow,omitempty"`
	Maestro          entities.Maestro       `json:"maestro,omitzero"`
	Channels         []Instance             `json:"channels"` // in the application's order

	// Addons are what it carries for others to read, by name.
	Addons map[string]entities.Addon `json:"addons,omitempty"`
}

// Parameter is a parameter that a service declares.
type Parameter struct {
	Name        string             `json:"name"`
	Type        entities.ParamType `json:"type"`
	Description string             `json:"description,omitempty"`
	// Overridable says whether a release may give a value; nil: unless it is a secret.
	Overridable *bool `json:"overridable,omitempty"`
}

// MayBeGiven tells whether a release may give a value.
func (p Parameter) MayBeGiven() bool {
	if p.Overridable != nil {
		return *p.Overridable
	}
	return p.Type != entities.ParamSecret
}

// Instance is a service in a channel: its rules, and what its payload is rendered from. Texts
// still hold their substitutions.
type Instance struct {
	Channel string `json:"channel"`
	Member
	Fleet            []Member                  `json:"fleet,omitempty"` // the instances, by runtime; none: there is the one above
	Drift            entities.Drift            `json:"drift"`
	ProgressDeadline Period                    `json:"progressDeadline"`
	Parameters       map[string]any            `json:"parameters,omitempty"`
	Env              map[string]entities.Value `json:"env,omitempty"`
	Files            []string                  `json:"files,omitempty"`
	NoRollback       bool                      `json:"noRollback,omitempty"`

	// Their definitions are named by digests that hold wherever the directory lies.
	Checks     []entities.Check     `json:"checks,omitempty"`
	Extensions []entities.Extension `json:"extensions,omitempty"`
}

// Member is what one instance of a service in a channel has for itself.
type Member struct {
	// Name is what the instance is called, where that is not the only one of its channel nor called as its runtime: it has been there
	// since before the channel became a fleet, or since the channel was one. Whoever publishes says it (Follow).
	Name    string               `json:"name,omitempty"`
	Runtime string               `json:"runtime,omitempty"`
	Kind    entities.RuntimeKind `json:"kind,omitempty"`
	// RuntimeLabels are those of the runtime, as payloads may name them.
	RuntimeLabels map[string]string   `json:"runtimeLabels,omitempty"`
	Address       map[string]string   `json:"address,omitempty"`
	Kubernetes    *Kubernetes         `json:"kubernetes,omitempty"`
	ECS           *ECS                `json:"ecs,omitempty"`
	MovedFrom     *entities.MovedFrom `json:"movedFrom,omitempty"`
}

// members are the instances of the channel, in order.
func (i *Instance) members() []*Member {
	if len(i.Fleet) == 0 {
		return []*Member{&i.Member}
	}
	all := make([]*Member, len(i.Fleet))
	for n := range i.Fleet {
		all[n] = &i.Fleet[n]
	}
	return all
}

// id names an instance of the channel.
func (i *Instance) id(m *Member) entities.InstanceID {
	otherwise := entities.OnlyInstance
	if len(i.Fleet) > 0 {
		otherwise = m.Runtime
	}
	return entities.InstanceID{Channel: i.Channel, Name: cmp.Or(m.Name, otherwise)}
}

// first is the instance that stands for the channel, where one has to.
func (i *Instance) first() *Member { return i.members()[0] }

// Kubernetes is what a service in a channel is made of on a Kubernetes runtime.
type Kubernetes struct {
	Bundle string   `json:"bundle"`
	Names  []string `json:"names,omitempty"` // that its substitutions name
	Fixed  []string `json:"fixed,omitempty"` // parameters that shaped it, which no release may set
	Prune  bool     `json:"prune,omitempty"`
	Adopt  bool     `json:"adopt,omitempty"`

	CreateNamespace bool `json:"createNamespace,omitempty"`
	RemoveClaims    bool `json:"removeClaims,omitempty"`
	RemoveForeign   bool `json:"removeForeign,omitempty"`

	Ignore []entities.IgnoredDifference `json:"ignore,omitempty"`
	// NamespaceLabels and NamespaceAnnotations are what it is made with.
	NamespaceLabels      map[string]string `json:"namespaceLabels,omitempty"`
	NamespaceAnnotations map[string]string `json:"namespaceAnnotations,omitempty"`
}

// ECS is what a service in a channel is made of on an ECS runtime: a bundle of its task definition and its service.
type ECS struct {
	Bundle string   `json:"bundle"`
	Names  []string `json:"names,omitempty"` // that its substitutions name
	Prune  bool     `json:"prune,omitempty"`
	Adopt  bool     `json:"adopt,omitempty"`
}

// bundle is the digest of the objects of an instance; empty: it is made of none.
func (i *Member) bundle() string {
	switch {
	case i.Kubernetes != nil:
		return i.Kubernetes.Bundle
	case i.ECS != nil:
		return i.ECS.Bundle
	}
	return ""
}

// ObjectList says what is in a bundle without its content: each object's digest, by what people call it: Deployment/web.
type ObjectList map[string]string

// Period is a duration that JSON shows as people write it.
type Period time.Duration

// MarshalText writes 1m30s.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// UnmarshalText reads 1m30s.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// New makes the canonical bytes. It reads them back, so that an incarnation just
// compiled and one from the store are the same.
func New(doc Document) (*Incarnation, error) {
	data, err := canonical.JSON(doc)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", doc.Application, err)
	}
	return Parse(append(data, '\n'))
}

// Parse reads an incarnation's bytes.
func Parse(data []byte) (*Incarnation, error) {
	inc := &Incarnation{bytes: bytes.Clone(data)}
	if err := json.Unmarshal(data, &inc.doc); err != nil {
		return nil, fmt.Errorf("read incarnation: %w", err)
	}
	if inc.doc.Schema != Schema {
		return nil, fmt.Errorf("read incarnation: its schema is %q, this version of Converge reads %s", inc.doc.Schema, Schema)
	}
	inc.services = make(map[string]*Service, len(inc.doc.Services))
	for i := range inc.doc.Services {
		inc.services[inc.doc.Services[i].Name] = &inc.doc.Services[i]
	}
	for i := range inc.doc.Services {
		inc.services[inc.doc.Services[i].Identity()] = &inc.doc.Services[i]
	}
	return inc, nil
}

// Bytes is the canonical JSON document.
func (i *Incarnation) Bytes() []byte { return bytes.Clone(i.bytes) }

// Hash is the SHA-256 of the bytes, in hex.
func (i *Incarnation) Hash() string { return canonical.Hash(i.bytes) }

// Application is the application's name.
func (i *Incarnation) Application() string { return i.doc.Application }

// Channels lists the release channels, in an order that respects conditions.
func (i *Incarnation) Channels() []string {
	return strict.Map(i.doc.Channels, func(c Channel) string { return c.Name })
}

// Services lists the services by name.
func (i *Incarnation) Services() []string {
	return strict.Map(i.doc.Services, func(s Service) string { return s.Name })
}

// ServiceKeys are what the services were called first, sorted: workflows, the store and manifests know them by that.
func (i *Incarnation) ServiceKeys() []string {
	return slices.Sorted(slices.Values(strict.Map(i.doc.Services, func(s Service) string { return s.Identity() })))
}

// ServiceNames are what people call the services that are called otherwise than first, by what they were called first.
func (i *Incarnation) ServiceNames() protocol.ServiceNames {
	var names protocol.ServiceNames
	for n := range i.doc.Services {
		if s := &i.doc.Services[n]; s.Key != "" {
			names = with(names, s.Key, s.Name)
		}
	}
	return names
}

// Service returns a service by its name, or by what it was called first: no other one may be called so.
func (i *Incarnation) Service(name string) (*Service, bool) {
	service, ok := i.services[name]
	return service, ok
}

// People are how callers prove who they are, and who may do what.
func (i *Incarnation) People() (*entities.Identity, []entities.Grant) {
	return i.doc.Identity, i.doc.Grants
}

// Imports are the libraries that it was compiled with.
func (i *Incarnation) Imports() []Import { return i.doc.Imports }

// Notifications are those that the application asks for.
func (i *Incarnation) Notifications() []entities.Notification { return i.doc.Notifications }

// Only is the incarnation with one of its services.
func (i *Incarnation) Only(service string) *Incarnation {
	doc := i.services[service]
	part := i.doc
	part.Services = []Service{*doc}
	return &Incarnation{doc: part, services: map[string]*Service{doc.Name: doc, doc.Identity(): doc}}
}

func (i *Incarnation) channel(name string) *Channel {
	at := slices.IndexFunc(i.doc.Channels, func(c Channel) bool { return c.Name == name })
	if at < 0 {
		return &Channel{Name: name}
	}
	return &i.doc.Channels[at]
}

func (s *Service) types() map[string]entities.ParamType {
	types := map[string]entities.ParamType{}
	for _, p := range s.Parameters {
		types[p.Name] = p.Type
	}
	return types
}

func (s *Service) instance(channel string) (*Instance, bool) {
	at := slices.IndexFunc(s.Channels, func(c Instance) bool { return c.Channel == channel })
	if at < 0 {
		return nil, false
	}
	return &s.Channels[at], true
}
