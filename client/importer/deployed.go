package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// deployed contains the services that a tool deploys, by their names here.
type deployed struct {
	services map[string]*deployedService
	stopped  map[string][]string // services that are left out, with what would be lost
	omitted  []string            // lines, each with the reason
}

// deployedService is a service in the form in which a tool deploys it.
type deployedService struct {
	version string
	needs   []string
	parts   map[string]deployedPart // by channel
	// tag contains the values of a chart that the version replaces. It is dropped if the chart does not accept it.
	tag map[string]any
}

// deployedPart is a service in one channel.
type deployedPart struct {
	cluster, namespace string
	observe            bool // a manual change is reported, and not reverted
	kubernetes         map[string]any
	overlay            *overlay // a kustomization to write, or nil
}

// defaultChannel is the channel of a service that is deployed once.
const defaultChannel = "live"

func (d *deployed) omit(format string, args ...any) {
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if !slices.Contains(d.omitted, line) {
		d.omitted = append(d.omitted, line)
	}
}

// add records a service in a channel. It leaves out a service whose name is invalid here or occurs twice.
func (d *deployed) add(name, channel, version string, part deployedPart) *deployedService {
	service := NameOf(name)
	if !isName(service) || !isName(channel) {
		d.omit("%s is not a valid service name", name)
		return nil
	}
	s := d.services[service]
	if s == nil {
		s = &deployedService{version: version, parts: map[string]deployedPart{}}
	}
	if _, twice := s.parts[channel]; twice {
		d.omit("%s exists twice in %s", name, channel)
		return nil
	}
	if part.substitutes() {
		d.omit("%s has a value that contains ${{, which would be interpolated", name)
		return nil
	}
	if part.namespace == "" && channel != defaultChannel {
		part.namespace = channel
		d.omit("the namespace of %s in %s is unknown: %[2]s is assumed, which may be wrong", service, channel)
	}
	s.parts[channel], d.services[service] = part, s
	return s
}

// substitutes reports whether a part has a value that Converge would substitute, or that it cannot write.
func (p deployedPart) substitutes() bool {
	written := []any{p.kubernetes}
	if p.overlay != nil {
		written = append(written, p.overlay.document)
	}
	text, err := yaml.Marshal(written)
	return err != nil || bytes.Contains(text, []byte("${{"))
}

// environments are the known channel names, in order. Unknown ones come between them.
var environments = []string{
	"dev", "development", "test", "testing", "qa", "int", "integration", "uat", "stage", "staging", "preprod", "canary", "", "prod", "production", defaultChannel,
}

// compareChannels orders channels.
func compareChannels(a, b string) int {
	rank := func(name string) int {
		if at := slices.Index(environments, name); at >= 0 {
			return at
		}
		return slices.Index(environments, "")
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// environmentOf splits the environment off a name: shop-staging is shop in staging.
func environmentOf(name string) (base, channel string) {
	for _, environment := range environments {
		if environment == "" {
			continue
		}
		if base, ok := strings.CutSuffix(name, "-"+environment); ok && base != "" {
			return base, environment
		}
		if base, ok := strings.CutPrefix(name, environment+"-"); ok && base != "" {
			return base, environment
		}
	}
	return name, defaultChannel
}

func (d *deployed) channels() []string {
	var all []string
	for _, s := range d.services {
		all = append(all, slices.Collect(maps.Keys(s.parts))...)
	}
	slices.SortFunc(all, compareChannels)
	return slices.Compact(all)
}
