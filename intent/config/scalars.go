package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// APIVersion is the current version of the configuration format.
const APIVersion = "converge/v1"

// Header contains the common fields of every document.
type Header struct {
	// The version of the format.
	APIVersion FormatVersion `json:"apiVersion"`
	// The kind of document.
	Kind string `json:"kind"`
	// The name, unique among the documents of this kind.
	Name Name `json:"name"`
}

// Title names the document in messages: service web.
func (h Header) Title() string { return strings.ToLower(h.Kind) + " " + string(h.Name) }

// The types of scalars and their allowed values.
type (
	// FormatVersion is the current version of the format. Documents of earlier versions are converted to it.
	FormatVersion string
	// Name is the name of a declared thing. It is used in workflow ids, queues and file names.
	Name string
	// ServiceName is the name of a service of the application, or of one of another application: orders/api.
	ServiceName string
	// ParameterName is the name of a parameter.
	ParameterName string
	// AspectName is the name of an aspect. It is used in full versions.
	AspectName string
	// EnvName is the name of an environment variable of a command.
	EnvName string
	// EnvPattern is the name of an environment variable, in which * matches any text.
	EnvPattern string
	// WorkerEnvName is the name of an environment variable of the worker.
	WorkerEnvName string
	// Version is the name of a version in the form for runtimes.
	Version string
	// Duration is a duration such as 90s or 1h30m; empty if it is not set.
	Duration string
	// ConfigChanges is release or hold.
	ConfigChanges string
	// Drift is enforce or observe.
	Drift string
	// ParamType is the type of a parameter.
	ParamType string
	// FetchMode is structured or exitCode.
	FetchMode string
	// OtherFetchMode is STRUCTURED_OUTPUT, the name of structured in other deployers.
	OtherFetchMode string
	// WorkerLocation is local or remote.
	WorkerLocation string
)

const (
	namePattern       = `^[a-z]([a-z0-9-]*[a-z0-9])?$`
	servicePattern    = `^([a-z]([a-z0-9-]*[a-z0-9])?/)?[a-z]([a-z0-9-]*[a-z0-9])?$`
	aspectPattern     = `^[a-z][a-z0-9]{0,19}$`
	parameterPattern  = `^[A-Za-z][A-Za-z0-9_-]*$`
	envPattern        = `^[A-Za-z_][A-Za-z0-9_]*$`
	envPatternPattern = `^[A-Za-z_*][A-Za-z0-9_*]*$`
	durationPattern   = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	versionPattern    = `^[A-Za-z0-9][A-Za-z0-9._+:@~=-]{0,127}$`
)

var (
	nameRE       = regexp.MustCompile(namePattern)
	parameterRE  = regexp.MustCompile(parameterPattern)
	envRE        = regexp.MustCompile(envPattern)
	envPatternRE = regexp.MustCompile(envPatternPattern)
	durationRE   = regexp.MustCompile(durationPattern)
	versionRE    = strict.Pattern(versionPattern)
	reservedRE   = regexp.MustCompile(`-i[0-9]+$|(^|-)[a-z][a-z0-9]*\.x[0-9a-f]{8}$`)
)

// Values lists the allowed values.
func (FormatVersion) Values() []string { return []string{APIVersion} }

// Values lists the allowed values.
func (ConfigChanges) Values() []string { return []string{"release", "hold"} }

// Values lists the allowed values.
func (Drift) Values() []string { return []string{"enforce", "observe"} }

// Values lists the allowed values.
func (ParamType) Values() []string { return []string{"string", "int", "float", "bool", "secretRef"} }

// Values lists the allowed values.
func (FetchMode) Values() []string { return []string{"structured", "exitCode"} }

// Values lists the allowed values.
func (OtherFetchMode) Values() []string { return []string{"STRUCTURED_OUTPUT"} }

// Values lists the allowed values.
func (WorkerLocation) Values() []string { return []string{"local", "remote"} }

// Pattern returns the pattern for the JSON schema.
func (Name) Pattern() string { return namePattern }

// Pattern returns the pattern for the JSON schema.
func (ServiceName) Pattern() string { return servicePattern }

// Pattern returns the pattern for the JSON schema.
func (ParameterName) Pattern() string { return parameterPattern }

// Pattern returns the pattern for the JSON schema.
func (AspectName) Pattern() string { return aspectPattern }

// Pattern returns the pattern for the JSON schema.
func (EnvName) Pattern() string { return envPattern }

// Pattern returns the pattern for the JSON schema.
func (EnvPattern) Pattern() string { return envPatternPattern }

// Pattern returns the pattern for the JSON schema.
func (WorkerEnvName) Pattern() string { return envPattern }

// Pattern returns the pattern for the JSON schema.
func (Version) Pattern() string { return versionPattern }

// Pattern returns the pattern for the JSON schema.
func (Duration) Pattern() string { return durationPattern }

// Check rejects invalid names.
func (n Name) Check() *Fault {
	return strict.FaultUnless(nameRE.MatchString(string(n)) && len(n) <= 63, "bad-name", "invalid name %q", string(n), "lower-case letters, digits and hyphens, a letter first, at most 63 of them")
}

// Check accepts the name of a service, or two names separated by a slash.
func (n ServiceName) Check() *Fault {
	application, service, elsewhere := strings.Cut(string(n), "/")
	if !elsewhere {
		return Name(n).Check()
	}
	return cmp.Or(Name(application).Check(), Name(service).Check())
}

// Check rejects invalid names of parameters.
func (n ParameterName) Check() *Fault {
	return strict.FaultUnless(parameterRE.MatchString(string(n)) && len(n) <= 63, "bad-name", "invalid parameter name %q", string(n), "letters, digits, hyphens and underscores, a letter first, at most 63 of them")
}

// Check rejects invalid names of aspects, and the name version, which is reserved for everything outside of aspects.
func (n AspectName) Check() *Fault {
	if n == entities.VersionAspect {
		return &Fault{Code: "bad-name", Message: `"version" is the aspect of everything that no other aspect names`, Expected: "another name"}
	}
	return strict.FaultUnless(entities.IsAspectName(string(n)), "bad-name", "invalid aspect name %q", string(n), "lower-case letters and digits, a letter first, at most 20 of them")
}

// Check rejects patterns that cannot match a name.
func (p EnvPattern) Check() *Fault {
	return strict.FaultUnless(envPatternRE.MatchString(string(p)), "bad-name", "invalid name or name pattern %q of environment variables", string(p), "letters, digits and underscores, with * for any part of it")
}

// Check rejects invalid names of environment variables. Names with the prefix PVN_ belong to the contract of C7; the prefix CONVERGE_ is
// reserved.
func (n EnvName) Check() *Fault {
	if fault := WorkerEnvName(n).Check(); fault != nil {
		return fault
	}
	if strings.HasPrefix(string(n), "PVN_") || strings.HasPrefix(string(n), "CONVERGE_") {
		return &Fault{
			Code: "bad-name", Message: fmt.Sprintf("%q is set by Converge itself", string(n)),
			Expected: "a name that does not begin with PVN_ or CONVERGE_",
		}
	}
	return nil
}

// Check rejects invalid names of environment variables.
func (n WorkerEnvName) Check() *Fault {
	return strict.FaultUnless(envRE.MatchString(string(n)) && len(n) <= 128, "bad-name", "invalid environment variable name %q", string(n), "letters, digits and underscores, no digit first")
}

// Check rejects invalid versions.
func (v Version) Check() *Fault { return CheckVersion(string(v)) }

// CheckVersion returns the problem of a version's name, or nil. Versions are opaque, but are used in commands, file names and lists:
// they consist of letters, digits and a few signs, with at most 128 characters, as entities checks, too. Names that end like "-i42" are
// reserved for config releases, and like "flags.x3f9a21c0" for aspects.
func CheckVersion(version string) *Fault {
	if fault := CheckFullVersion(version); fault != nil {
		return fault
	}
	if end := reservedRE.FindString(version); end != "" {
		return &Fault{
			Code: "bad-version", Message: fmt.Sprintf("%q ends in %q, which marks the release of a configuration change or of an aspect", version, end),
			Expected: "another name",
		}
	}
	return nil
}

// CheckFullVersion also accepts the full versions of config releases and of aspects.
func CheckFullVersion(version string) *Fault {
	return strict.FaultUnless(versionRE().MatchString(version), "bad-version", "invalid version %q", version, "1 to 128 letters, digits and . _ + - : @ ~ =, beginning with a letter or digit")
}

// Check rejects invalid durations.
func (d Duration) Check() *Fault {
	v, err := time.ParseDuration(string(d))
	if !durationRE.MatchString(string(d)) || err != nil {
		return &Fault{Code: "bad-duration", Message: fmt.Sprintf("invalid duration %q", strict.Clip(string(d))), Expected: d.Wanted()}
	}
	if v > 366*24*time.Hour {
		return &Fault{Code: "bad-duration", Message: fmt.Sprintf("%q is too long", strict.Clip(string(d))), Expected: "at most a year"}
	}
	return nil
}

// Wanted describes the allowed values.
func (Duration) Wanted() string { return "a duration such as 30s, 5m or 1h30m" }

// Or returns the duration, or other if it is not set (or invalid, which is reported).
func (d Duration) Or(other time.Duration) time.Duration {
	if v, err := time.ParseDuration(string(d)); err == nil && d != "" {
		return v
	}
	return other
}

// MaxInt is the largest integer that JSON represents exactly.
const MaxInt = 1<<53 - 1

// EnvValue is the value of an environment variable: text, or a reference to a secret.
type EnvValue entities.Value

// Literal is the value of a parameter: text, a number, a boolean, or a reference to a secret.
type Literal struct {
	V any // string, int64, float64, bool or entities.Value
}

// Wanted describes the allowed values.
func (EnvValue) Wanted() string { return "text, or {workerEnv: NAME}" }

// Wanted describes the allowed values.
func (Literal) Wanted() string { return "text, a number, true, false or {workerEnv: NAME}" }

// DecodeStrict decodes either form.
func (v *EnvValue) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		*v = EnvValue(decodeSecret(d, path, node))
		return
	}
	var text string
	d.Value(path, node, &text)
	v.Literal = text
}

// DecodeStrict decodes all forms.
func (l *Literal) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		l.V = decodeSecret(d, path, node)
		return
	}
	value, ok := strict.Scalar(node)
	if !ok {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: l.Wanted()})
		return
	}
	i, isInt := value.(int64)
	if _, isFloat := value.(float64); isInt && (i > MaxInt || i < -MaxInt) || isFloat && strict.LosesDigits(node.Value) {
		d.Fail(path, node, Fault{Code: "bad-value", Message: "this number is too large", Expected: "at most 2^53 - 1"})
		return
	}
	l.V = value
}

// Number is a number, or a substitution with a number as its result.
type Number struct {
	V    float64
	Text string // not empty: a substitution
}

// Wanted describes the allowed values.
func (Number) Wanted() string { return "a number, or a substitution of one" }

// DecodeStrict decodes either form.
func (n *Number) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	value, _ := strict.Scalar(node)
	switch v := value.(type) {
	case int64:
		n.V = float64(v)
		return
	case float64:
		n.V = v
		return
	case string:
		if HasSubstitution(v) {
			n.Text = v
			return
		}
	}
	d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: n.Wanted()})
}

// HasSubstitution reports whether a text contains a substitution, valid or not.
func HasSubstitution(text string) bool { return strings.Contains(text, "${{") }
