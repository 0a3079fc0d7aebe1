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

// APIVersion is the present version of the configuration format.
const APIVersion = "converge/v1"

// Header begins every document.
type Header struct {
	// The version of the format.
	APIVersion FormatVersion `json:"apiVersion"`
	// The kind of document.
	Kind string `json:"kind"`
	// The name, unique among the documents of this kind.
	Name Name `json:"name"`
}

// Title names the document in a sentence: service web.
func (h Header) Title() string { return strings.ToLower(h.Kind) + " " + string(h.Name) }

// The types of scalars, each with what it accepts.
type (
	// FormatVersion is the present version of the format, to which documents of earlier ones are converted.
	FormatVersion string
	// Name is the name of something declared: it goes into workflow ids, queues and file names.
	Name string
	// ServiceName is the name of a service of the application, or of one of another application: orders/api.
	ServiceName string
	// ParameterName is the name of a parameter.
	ParameterName string
	// AspectName is the name of an aspect, which goes into full versions.
	AspectName string
	// EnvName is the name of an environment variable that a service gives to commands.
	EnvName string
	// OwnEnvName is the name of an environment variable that whoever owns the commands gives to them.
	OwnEnvName string
	// WorkerEnvName is the name of an environment variable of the worker.
	WorkerEnvName string
	// Version is a version's name, as runtimes see it.
	Version string
	// Duration is a length of time such as 90s or 1h30m. The empty one was not given.
	Duration string
	// ConfigChanges is release or hold.
	ConfigChanges string
	// Drift is enforce or observe.
	Drift string
	// ParamType is the type of a parameter.
	ParamType string
	// FetchMode is structured or exitCode.
	FetchMode string
	// OtherFetchMode is STRUCTURED_OUTPUT, which other deployers call structured.
	OtherFetchMode string
	// WorkerLocation is local or remote.
	WorkerLocation string
)

const (
	namePattern      = `^[a-z]([a-z0-9-]*[a-z0-9])?$`
	servicePattern   = `^([a-z]([a-z0-9-]*[a-z0-9])?/)?[a-z]([a-z0-9-]*[a-z0-9])?$`
	aspectPattern    = `^[a-z][a-z0-9]{0,19}$`
	parameterPattern = `^[A-Za-z][A-Za-z0-9_-]*$`
	envPattern       = `^[A-Za-z_][A-Za-z0-9_]*$`
	durationPattern  = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	versionPattern   = `^[A-Za-z0-9][A-Za-z0-9._+:@~=-]{0,127}$`
)

var (
	nameRE      = regexp.MustCompile(namePattern)
	parameterRE = regexp.MustCompile(parameterPattern)
	envRE       = regexp.MustCompile(envPattern)
	durationRE  = regexp.MustCompile(durationPattern)
	versionRE   = regexp.MustCompile(versionPattern)
	reservedRE  = regexp.MustCompile(`-i[0-9]+$|(^|-)[a-z][a-z0-9]*\.x[0-9a-f]{8}$`)
)

// Values lists what may stand in the file.
func (FormatVersion) Values() []string { return []string{APIVersion} }

// Values lists what may stand in the file.
func (ConfigChanges) Values() []string { return []string{"release", "hold"} }

// Values lists what may stand in the file.
func (Drift) Values() []string { return []string{"enforce", "observe"} }

// Values lists what may stand in the file.
func (ParamType) Values() []string { return []string{"string", "int", "float", "bool", "secretRef"} }

// Values lists what may stand in the file.
func (FetchMode) Values() []string { return []string{"structured", "exitCode"} }

// Values lists what may stand in the file.
func (OtherFetchMode) Values() []string { return []string{"STRUCTURED_OUTPUT"} }

// Values lists what may stand in the file.
func (WorkerLocation) Values() []string { return []string{"local", "remote"} }

// Pattern is for the JSON schema.
func (Name) Pattern() string { return namePattern }

// Pattern is for the JSON schema.
func (ServiceName) Pattern() string { return servicePattern }

// Pattern is for the JSON schema.
func (ParameterName) Pattern() string { return parameterPattern }

// Pattern is for the JSON schema.
func (AspectName) Pattern() string { return aspectPattern }

// Pattern is for the JSON schema.
func (EnvName) Pattern() string { return envPattern }

// Pattern is for the JSON schema.
func (OwnEnvName) Pattern() string { return envPattern }

// Pattern is for the JSON schema.
func (WorkerEnvName) Pattern() string { return envPattern }

// Pattern is for the JSON schema.
func (Version) Pattern() string { return versionPattern }

// Pattern is for the JSON schema.
func (Duration) Pattern() string { return durationPattern }

// Check refuses what is no name.
func (n Name) Check() *Fault {
	return strict.Unless(nameRE.MatchString(string(n)) && len(n) <= 63, "bad-name", "%q is no name", string(n), "lower-case letters, digits and hyphens, a letter first, at most 63 of them")
}

// Check refuses what is neither the name of a service nor two names with a slash between them.
func (n ServiceName) Check() *Fault {
	application, service, elsewhere := strings.Cut(string(n), "/")
	if !elsewhere {
		return Name(n).Check()
	}
	return cmp.Or(Name(application).Check(), Name(service).Check())
}

// Check refuses what is no parameter's name.
func (n ParameterName) Check() *Fault {
	return strict.Unless(parameterRE.MatchString(string(n)) && len(n) <= 63, "bad-name", "%q is no name of a parameter", string(n), "letters, digits, hyphens and underscores, a letter first, at most 63 of them")
}

// Check refuses what is no aspect's name, and that of the aspect without one.
func (n AspectName) Check() *Fault {
	if n == entities.VersionAspect {
		return &Fault{Code: "bad-name", Message: `"version" is the aspect of all that no other one names`, Expected: "another name"}
	}
	return strict.Unless(entities.IsAspectName(string(n)), "bad-name", "%q is no name of an aspect", string(n), "lower-case letters and digits, a letter first, at most 20 of them")
}

// Check refuses what OwnEnvName does, and by what loaders and shells are told what to run.
func (n EnvName) Check() *Fault {
	if fault := OwnEnvName(n).Check(); fault != nil {
		return fault
	}
	return strict.Unless(!entities.SteersPrograms(string(n)), "bad-name", "%q says what programs run, or where they are found", string(n), "another name; PATH and the like are for the runtime to set")
}

// Check refuses what no environment variable can be called. Names beginning with PVN_ belong to
// the contract of C7, those with CONVERGE_ to what is to come.
func (n OwnEnvName) Check() *Fault {
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

// Check refuses what no environment variable can be called.
func (n WorkerEnvName) Check() *Fault {
	return strict.Unless(envRE.MatchString(string(n)) && len(n) <= 128, "bad-name", "%q is no name of an environment variable", string(n), "letters, digits and underscores, no digit first")
}

// Check refuses what is no version.
func (v Version) Check() *Fault { return CheckVersion(string(v)) }

// CheckVersion says what is wrong with a version's name; nil is nothing. Versions are opaque, but
// go into commands, file names and lists: letters, digits and a
// few signs, at most 128 characters, as entities checks them too.
// Names that end like "-i42" are those of config releases, and like "flags.x3f9a21c0" those of aspects.
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

// CheckFullVersion accepts the full versions of config releases and of aspects too.
func CheckFullVersion(version string) *Fault {
	return strict.Unless(versionRE.MatchString(version), "bad-version", "%q is no version", version, "1 to 128 letters, digits and . _ + - : @ ~ =, beginning with a letter or digit")
}

// Check refuses what is no length of time.
func (d Duration) Check() *Fault {
	v, err := time.ParseDuration(string(d))
	if !durationRE.MatchString(string(d)) || err != nil {
		return &Fault{Code: "bad-duration", Message: fmt.Sprintf("%q is no length of time", strict.Clip(string(d))), Expected: d.Wanted()}
	}
	if v > 366*24*time.Hour {
		return &Fault{Code: "bad-duration", Message: fmt.Sprintf("%q is too long", strict.Clip(string(d))), Expected: "at most a year"}
	}
	return nil
}

// Wanted words what may stand in the file.
func (Duration) Wanted() string { return "a length of time such as 30s, 5m or 1h30m" }

// Or is the duration, or another when it was not given (or was wrong, which is reported).
func (d Duration) Or(other time.Duration) time.Duration {
	if v, err := time.ParseDuration(string(d)); err == nil && d != "" {
		return v
	}
	return other
}

// MaxInt is the largest whole number that JSON carries unchanged.
const MaxInt = 1<<53 - 1

// EnvValue is the value of an environment variable: text, or a reference to a secret.
type EnvValue entities.Value

// Literal is a value of a parameter: text, a number, a truth value, or a reference to a secret.
type Literal struct {
	V any // string, int64, float64, bool or entities.Value
}

// Wanted words what may stand in the file.
func (EnvValue) Wanted() string { return "text, or {workerEnv: NAME}" }

// Wanted words what may stand in the file.
func (Literal) Wanted() string { return "text, a number, true, false or {workerEnv: NAME}" }

// DecodeStrict reads either form.
func (v *EnvValue) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		*v = EnvValue(decodeSecret(d, path, node))
		return
	}
	var text string
	d.Value(path, node, &text)
	v.Literal = text
}

// DecodeStrict reads any of the forms.
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
	if i, isInt := value.(int64); isInt && (i > MaxInt || i < -MaxInt) {
		d.Fail(path, node, Fault{Code: "bad-value", Message: "this is too large a number", Expected: "at most 2^53 - 1"})
		return
	}
	l.V = value
}

// Number is a number, or a substitution that stands for one.
type Number struct {
	V    float64
	Text string // not empty: a substitution
}

// Wanted words what may stand in the file.
func (Number) Wanted() string { return "a number, or a substitution of one" }

// DecodeStrict reads either form.
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

// HasSubstitution reports whether a text holds, or means to hold, a substitution.
func HasSubstitution(text string) bool { return strings.Contains(text, "${{") }
