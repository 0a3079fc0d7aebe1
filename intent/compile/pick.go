package compile

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// pick finds the one runtime of a channel that the service runs on there: the one it names, or the
// only one that fits what it says.
func (s *serviceCompiler) pick(channel string, d *draft) (runtimeRef, bool) {
	refs := s.refs[channel]
	if wanted := string(s.Spec.Runtime); wanted != "" {
		if i := slices.IndexFunc(refs, func(ref runtimeRef) bool { return ref.name == wanted }); i >= 0 {
			return refs[i], s.suits(channel, refs[i], d)
		}
		if !s.partial && !s.misnamed && !s.Faulty("runtime") {
			names := namesOf(refs)
			s.reportIn(s.Decoder, "runtime", channel, substitute.Trouble{InChannel: true, Fault: strict.Unknown("unknown-runtime", fmt.Sprintf("there is no runtime %q", wanted), wanted, names)})
		}
		return runtimeRef{}, false
	}
	if len(refs) == 1 {
		return refs[0], s.suits(channel, refs[0], d)
	}
	fitting := slices.DeleteFunc(slices.Clone(refs), func(ref runtimeRef) bool { return d.misfit(s.runtimes[ref.name].Kind) != nil })
	if len(fitting) == 1 {
		return fitting[0], true
	}
	if s.partial || s.misnamed || s.config.Application.Faulty("releaseChannels") || s.unresolved(channel) {
		return runtimeRef{}, false
	}
	fault := strict.Fault{Code: "no-runtime", Message: "no runtime can run this service", Expected: "a runtime there, or the service to leave the release channel out"}
	if len(refs) > 0 {
		fault.Expected = fmt.Sprintf("one of kind %s there, or the service to leave the release channel out", d.wants())
	}
	if len(fitting) > 1 {
		fault = strict.Fault{Code: "ambiguous-runtime", Message: "several runtimes could run this service", Expected: `"runtime" to be ` + strict.OneOf(namesOf(fitting))}
	}
	s.reportIn(s.Decoder, "runtime", channel, substitute.Trouble{InChannel: true, Fault: fault})
	return runtimeRef{}, false
}

func namesOf(refs []runtimeRef) []string {
	var names []string
	for _, ref := range refs {
		names = append(names, ref.name)
	}
	return names
}

// suits tells whether the runtime is of a kind that the service says something for.
func (s *serviceCompiler) suits(channel string, ref runtimeRef, d *draft) bool {
	wrong := d.misfit(s.runtimes[ref.name].Kind)
	if wrong == nil {
		return true
	}
	if s.Faulty("kubernetes") || s.Faulty("custom") || s.Faulty("perReleaseChannel") {
		return false
	}
	fault := wrong.v
	fault.Message = fmt.Sprintf("runtime %q, of kind %s, %s", ref.name, s.runtimes[ref.name].Kind, fault.Message)
	s.reportIn(s.Decoder, wrong.at, channel, substitute.Trouble{InChannel: true, Fault: fault})
	return false
}

// wants is the kind of runtime that a service is written for.
func (d *draft) wants() entities.RuntimeKind {
	if d.kubernetes != nil {
		return entities.RuntimeKubernetes
	}
	return entities.RuntimeCustom
}

// misfit says what keeps a service off runtimes of a kind; nil is nothing. Runtimes in memory take
// anything.
func (d *draft) misfit(kind entities.RuntimeKind) *located[strict.Fault] {
	switch {
	case kind == entities.RuntimeKubernetes && d.customAt != "":
		return &located[strict.Fault]{strict.Fault{Code: "wrong-kind", Message: "runs no commands", Expected: `"kubernetes" instead of "custom"`}, d.customAt}
	case kind == entities.RuntimeKubernetes && d.kubernetes == nil:
		return &located[strict.Fault]{strict.Fault{
			Code: "missing-field", Message: "does not know what the service is made of",
			Expected: `"kubernetes" with manifests, a kustomization or a chart`,
		}, "kubernetes"}
	case kind == entities.RuntimeCustom && d.kubernetes != nil:
		return &located[strict.Fault]{strict.Fault{Code: "wrong-kind", Message: "takes no objects", Expected: `"custom" instead of "kubernetes", or a runtime of kind kubernetes`}, d.kubernetes.at}
	}
	return nil
}
