package entities

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// RuntimeAllow is the owner's declaration of who may use a runtime, and for what. A missing list allows everything of its kind, except Env.
// Names may contain "*".
type RuntimeAllow struct {
	Applications []string      `json:"applications,omitempty"` // besides the owner
	Namespaces   []string      `json:"namespaces,omitempty"`
	Kinds        []AllowedKind `json:"kinds,omitempty"`
	// ServiceAccounts are the accounts that instances may use. If the list is not empty, each instance must use one of them.
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
	// Env are the environment variables that services of other applications may set for the commands of the runtime.
	Env []string `json:"env,omitempty"`
}

// ServiceEnvPrefix begins the names of the environment variables that any service may set for commands of another application: no program
// knows them.
const ServiceEnvPrefix = "SERVICE_"

// EnvDenial returns why services of an application may not set an environment variable for the commands of the runtime, or "": it could
// control what they run, and where. allow is the newest declaration.
func (d RuntimeDefinition) EnvDenial(allow *RuntimeAllow, application, name string) string {
	if application == d.Owner || strings.HasPrefix(name, ServiceEnvPrefix) || allow != nil && matchesOne(allow.Env, name) {
		return ""
	}
	allowed := []string{ServiceEnvPrefix + "*"}
	if allow != nil {
		allowed = append(allowed, allow.Env...)
	}
	return fmt.Sprintf("runtime %s of application %s does not let it set %s; it allows %s (allow.env)", d.Name, d.Owner, name, JoinNames(allowed))
}

// AllowedKind is a kind of Kubernetes object. The core group is empty.
type AllowedKind struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
}

// Where an instance is on a runtime, by the names in Payload.Address.
const (
	AddressNamespace      = "namespace"
	AddressServiceAccount = "serviceAccount"
)

// DenialReason returns why an instance may not use the runtime, or "". Its objects are checked one by one. Without an address nothing was
// ever applied, and only the application counts.
func (d RuntimeDefinition) DenialReason(application string, address map[string]string) string {
	a := d.Allow
	if a == nil {
		return ""
	}
	if application != d.Owner && len(a.Applications) > 0 && !matchesOne(a.Applications, application) {
		return fmt.Sprintf("runtime %s is not for application %s; its owner allows %s", d.Name, application, OneOf(a.Applications))
	}
	if address == nil {
		return ""
	}
	if why := a.namespaceDenial(address[AddressNamespace]); why != "" {
		return fmt.Sprintf("runtime %s %s", d.Name, why)
	}
	if account := address[AddressServiceAccount]; len(a.ServiceAccounts) > 0 && !matchesOne(a.ServiceAccounts, account) {
		return fmt.Sprintf("runtime %s requires a service account, %s; the release channel names %q", d.Name, OneOf(a.ServiceAccounts), account)
	}
	return ""
}

func (a *RuntimeAllow) namespaceDenial(namespace string) string {
	if len(a.Namespaces) == 0 || matchesOne(a.Namespaces, namespace) {
		return ""
	}
	return fmt.Sprintf("is not for namespace %q; its owner allows %s", namespace, OneOf(a.Namespaces))
}

// ObjectDenial returns why an object may not be applied to the runtime, or "". A cluster-scoped object has no namespace. If namespaces are
// listed, its kind must be listed too, in full, since it could affect all of them.
func (a *RuntimeAllow) ObjectDenial(kind AllowedKind, namespace string) string {
	if a == nil {
		return ""
	}
	named := kind.String()
	listed := slices.ContainsFunc(a.Kinds, func(k AllowedKind) bool { return k.matches(kind) })
	switch {
	case len(a.Kinds) > 0 && !listed:
		return fmt.Sprintf("is not for %s; its owner allows %s", named, OneOf(kindNames(a.Kinds)))
	case namespace != "":
		return a.namespaceDenial(namespace)
	case len(a.Namespaces) > 0 && !slices.Contains(a.Kinds, kind):
		return fmt.Sprintf("is not for %s, which is cluster-scoped; its owner allows namespaces, and does not list this kind", named)
	}
	return ""
}

// String returns Deployment.apps, or ConfigMap.
func (k AllowedKind) String() string { return strings.TrimSuffix(k.Kind+"."+k.Group, ".") }

func (k AllowedKind) matches(o AllowedKind) bool {
	return matchesOne([]string{k.Kind}, o.Kind) && (k.Group == o.Group || matchesOne([]string{cmp.Or(k.Group, "-")}, o.Group))
}

func kindNames(kinds []AllowedKind) (names []string) {
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return names
}

// matchesOne reports whether a name matches one of the patterns. An invalid pattern matches nothing.
func matchesOne(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
