// Package incarnation contains the compiled snapshot of an application. It renders the payloads of a version, derives the rules that
// services decide by, and compares two incarnations.
//
// It reads no files, and does not know where incarnations come from or are stored. Of intent it imports the names and versions of
// config, and no package that compiles or stores.
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

// Incarnation is an immutable compiled snapshot of one application: the rules of each service and the inputs of its payloads. Its bytes
// are canonical JSON, and their hash is its name (D4, D5). Definitions of runtimes, secrets and numbers are not part of it.
type Incarnation struct {
	doc      Document
	bytes    []byte
	services map[string]*Service
	works    sync.Map // *plan.Work by channel, see Work
}

// Document is the content of an incarnation in its JSON form.
type Document struct {
	Schema      string    `json:"schema"`
	Application string    `json:"application"`
	Description string    `json:"description,omitempty"`
	Channels    []Channel `json:"channels"` // in an order that respects conditions
	Services    []Service `json:"services"` // by name
	// Imports are the libraries that declare some of the channels and protections, in the order of the application.
	Imports []Import `json:"imports,omitempty"`

	Grants        []entities.Grant        `json:"grants,omitempty"`
	Identity      *entities.Identity      `json:"identity,omitempty"`
	Notifications []entities.Notification `json:"notifications,omitempty"`
}

// Import identifies a library by its content.
type Import struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Digest  string `json:"digest"` // SHA-256 of the content, in hex
}

// Channel is a release channel.
type Channel struct {
	Name string `json:"name"`
	// RenamedFrom is the former name. Key is the first name, by which runtimes identify the channel, if it differs from Name.
	// Publication sets Key from the newest incarnation (InheritChannelKeys).
	RenamedFrom string               `json:"renamedFrom,omitempty"`
	Key         string               `json:"key,omitempty"`
	Labels      map[string]string    `json:"labels,omitempty"`
	Constants   map[string]string    `json:"constants,omitempty"`
	Conditions  []entities.Condition `json:"conditions,omitempty"`
	NoRollback  bool                 `json:"noRollback,omitempty"`
	OnDelete    entities.OnDelete    `json:"onDelete,omitempty"`
	ReportOnly  bool                 `json:"reportOnly,omitempty"`
	Rollout     *entities.Rollout    `json:"rollout,omitempty"`
	Plan        *plan.Work           `json:"plan,omitempty"` // nil: no service declares plan settings here
}

// Service is the configuration of a service that all its channels share, and its instances.
type Service struct {
	Name string `json:"name"`
	// As for a channel; workflows and the store also identify a service by its first name.
	RenamedFrom          string                 `json:"renamedFrom,omitempty"`
	Key                  string                 `json:"key,omitempty"`
	Description          string                 `json:"description,omitempty"`
	Version              string                 `json:"version,omitempty"`
	InitialVersion       string                 `json:"initialVersion,omitempty"`
	DeclaredAt           string                 `json:"declaredAt,omitempty"`
	ConfigChanges        entities.ConfigChanges `json:"configChanges"`
	ProgressDeadline     Period                 `json:"progressDeadline"`
	Parameters           []Parameter            `json:"parameters,omitempty"`
	Aspects              []entities.Aspect      `json:"aspects,omitempty"`
	Files                map[string]string      `json:"files,omitempty"`    // path → content, of all channels
	Objects              map[string]ObjectList  `json:"objects,omitempty"`  // by bundle digest
	Remove               bool                   `json:"remove,omitempty"`   // when it is no longer declared
	GatesApplyToRollback bool                   `json:"askGates,omitempty"` // to manual ones
	NoRollbackBelow      string                 `json:"noRollbackBelow,omitempty"`
	Maestro              entities.Maestro       `json:"maestro,omitzero"`
	Channels             []InstanceDoc          `json:"channels"` // in the application's order

	// Addons by name, for other systems.
	Addons map[string]entities.Addon `json:"addons,omitempty"`
}

// Parameter is a parameter that a service declares.
type Parameter struct {
	Name        string             `json:"name"`
	Type        entities.ParamType `json:"type"`
	Description string             `json:"description,omitempty"`
	// Overridable: whether a release may set a value; nil: unless it is a secret.
	Overridable *bool `json:"overridable,omitempty"`
}

// Settable reports whether a release may set a value.
func (p Parameter) Settable() bool {
	if p.Overridable != nil {
		return *p.Overridable
	}
	return p.Type != entities.ParamSecret
}

// InstanceDoc is a service in a channel: its rules, and the inputs of its payload. Texts still contain their substitutions.
type InstanceDoc struct {
	Channel string `json:"channel"`
	Member
	Fleet            []Member                  `json:"fleet,omitempty"` // the instances by runtime; empty: only the instance above
	Drift            entities.Drift            `json:"drift"`
	ProgressDeadline Period                    `json:"progressDeadline"`
	Parameters       map[string]any            `json:"parameters,omitempty"`
	Env              map[string]entities.Value `json:"env,omitempty"`
	Files            []string                  `json:"files,omitempty"`
	NoRollback       bool                      `json:"noRollback,omitempty"`

	// Their definitions are referred to by digests that do not depend on the directory.
	Checks     []entities.Check     `json:"checks,omitempty"`
	Extensions []entities.Extension `json:"extensions,omitempty"`
}

// Member is the runtime-specific part of an instance.
type Member struct {
	// Name is the name of an instance that existed before its channel became a fleet or stopped being one. It is empty if the instance
	// has its default name: that of its runtime, or none if it is the only one. Publication sets it (InheritInstanceNames).
	Name    string               `json:"name,omitempty"`
	Runtime string               `json:"runtime,omitempty"`
	Kind    entities.RuntimeKind `json:"kind,omitempty"`
	// RuntimeLabels are the labels of the runtime, for substitutions in payloads.
	RuntimeLabels map[string]string   `json:"runtimeLabels,omitempty"`
	Address       map[string]string   `json:"address,omitempty"`
	Kubernetes    *Kubernetes         `json:"kubernetes,omitempty"`
	ECS           *ECS                `json:"ecs,omitempty"`
	MovedFrom     *entities.MovedFrom `json:"movedFrom,omitempty"`
}

// members returns the instances of the channel in order.
func (i *InstanceDoc) members() []*Member {
	if len(i.Fleet) == 0 {
		return []*Member{&i.Member}
	}
	all := make([]*Member, len(i.Fleet))
	for n := range i.Fleet {
		all[n] = &i.Fleet[n]
	}
	return all
}

// id returns the id of an instance of the channel.
func (i *InstanceDoc) id(m *Member) entities.InstanceID {
	otherwise := entities.OnlyInstance
	if len(i.Fleet) > 0 {
		otherwise = m.Runtime
	}
	return entities.InstanceID{Channel: i.Channel, Name: cmp.Or(m.Name, otherwise)}
}

// first returns the instance that represents the channel.
func (i *InstanceDoc) first() *Member { return i.members()[0] }

// Kubernetes is the input of a payload on a Kubernetes runtime.
type Kubernetes struct {
	Bundle string   `json:"bundle"`
	Names  []string `json:"names,omitempty"` // used by its substitutions
	Fixed  []string `json:"fixed,omitempty"` // parameters that shaped it; no release may set them
	Prune  bool     `json:"prune,omitempty"`
	Adopt  bool     `json:"adopt,omitempty"`

	CreateNamespace bool `json:"createNamespace,omitempty"`
	RemoveClaims    bool `json:"removeClaims,omitempty"`
	RemoveForeign   bool `json:"removeForeign,omitempty"`

	Ignore   []entities.IgnoredDifference `json:"ignore,omitempty"`
	Excluded []entities.ExcludedObject    `json:"excluded,omitempty"`
	// NamespaceLabels and NamespaceAnnotations are set when the namespace is created.
	NamespaceLabels      map[string]string `json:"namespaceLabels,omitempty"`
	NamespaceAnnotations map[string]string `json:"namespaceAnnotations,omitempty"`
}

// ECS is the input of a payload on an ECS runtime: a bundle of its task definition and its service.
type ECS struct {
	Bundle string   `json:"bundle"`
	Names  []string `json:"names,omitempty"` // used by its substitutions
	Prune  bool     `json:"prune,omitempty"`
	Adopt  bool     `json:"adopt,omitempty"`
}

// bundle returns the digest of the objects of an instance; empty: it has none.
func (i *Member) bundle() string {
	switch {
	case i.Kubernetes != nil:
		return i.Kubernetes.Bundle
	case i.ECS != nil:
		return i.ECS.Bundle
	}
	return ""
}

// ObjectList lists the objects of a bundle without their content: readable name (Deployment/web) → digest.
type ObjectList map[string]string

// Period is a duration whose JSON form is readable.
type Period time.Duration

// MarshalText writes 1m30s.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// UnmarshalText reads 1m30s.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// New encodes a document to its canonical bytes. It parses them again, so that a compiled incarnation is equal to one from the store.
func New(doc Document) (*Incarnation, error) {
	data, err := canonical.JSON(doc)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", doc.Application, err)
	}
	return Parse(append(data, '\n'))
}

// Parse parses the bytes of an incarnation.
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

// Bytes returns the canonical JSON document.
func (i *Incarnation) Bytes() []byte { return bytes.Clone(i.bytes) }

// Hash returns the SHA-256 of the bytes, in hex.
func (i *Incarnation) Hash() string { return canonical.Hash(i.bytes) }

// Application returns the application's name.
func (i *Incarnation) Application() string { return i.doc.Application }

// Channels lists the release channels, in an order that respects conditions.
func (i *Incarnation) Channels() []string {
	return strict.Map(i.doc.Channels, func(c Channel) string { return c.Name })
}

// Services lists the services by name.
func (i *Incarnation) Services() []string {
	return strict.Map(i.doc.Services, func(s Service) string { return s.Name })
}

// ServiceKeys returns the sorted first names of the services, by which workflows, the store and manifests identify them.
func (i *Incarnation) ServiceKeys() []string {
	return slices.Sorted(slices.Values(strict.Map(i.doc.Services, func(s Service) string { return s.Identity() })))
}

// ServiceNames maps the first names of renamed services to their current names.
func (i *Incarnation) ServiceNames() protocol.ServiceNames {
	var names protocol.ServiceNames
	for n := range i.doc.Services {
		if s := &i.doc.Services[n]; s.Key != "" {
			names = with(names, s.Key, s.Name)
		}
	}
	return names
}

// Service returns a service by its current name or its first name, which no other service may have.
func (i *Incarnation) Service(name string) (*Service, bool) {
	service, ok := i.services[name]
	return service, ok
}

// People returns how callers authenticate, and the permissions.
func (i *Incarnation) People() (*entities.Identity, []entities.Grant) {
	return i.doc.Identity, i.doc.Grants
}

// Imports returns the libraries that it was compiled with.
func (i *Incarnation) Imports() []Import { return i.doc.Imports }

// Notifications returns the notifications that the application configures.
func (i *Incarnation) Notifications() []entities.Notification { return i.doc.Notifications }

// Only returns an incarnation with one of the services.
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

func (s *Service) instance(channel string) (*InstanceDoc, bool) {
	at := slices.IndexFunc(s.Channels, func(c InstanceDoc) bool { return c.Channel == channel })
	if at < 0 {
		return nil, false
	}
	return &s.Channels[at], true
}
