package verb

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

var installation = [...]Row{
	{
		Name: protocol.Pause, Description: "pauses everything: all services of all applications", validate: checkExcept,
		payload: payloadOf(func(r *Request, p *protocol.PauseAllRequest) { r.RequestMeta, r.Except = p.RequestMeta, p.Except }),
	},
	{Name: protocol.Resume, Description: "ends the pause of everything", payload: actPayload},
	{
		Name: protocol.Configure, Description: "sets the permissions for runtimes and for the installation", Store: true, validate: checkRules,
		payload: payloadOf(func(r *Request, p *protocol.ConfigureRequest) { r.RequestMeta, r.Rules = p.RequestMeta, p.Rules }),
	},
	{
		Name: protocol.PublishLibrary, Description: "publishes a library, for applications to import", Store: true, validate: checkLibrary,
		payload: payloadOf(func(r *Request, p *protocol.LibraryRequest) { r.RequestMeta, r.Library = p.RequestMeta, p.LibraryName }),
	},
}

// maxExcept limits the applications that a pause of the installation excludes.
const maxExcept = 50

func checkExcept(r Request) error {
	if len(r.Except) > maxExcept {
		return fmt.Errorf(`"except" names %d applications; at most %d`, len(r.Except), maxExcept)
	}
	for _, name := range r.Except {
		if name == "" || len(name) > MaxName {
			return fmt.Errorf(`"except" names %q; expected names of applications`, Clip(name, 60))
		}
	}
	return nil
}

// checkRules rejects invalid rules.
func checkRules(r Request) error {
	if i := r.Rules.Identity; i != nil && (i.Issuer == "" || i.Audience == "") {
		return errors.New(`"identity" requires "issuer" and "audience"`)
	}
	if err := entities.CheckBoard(r.Rules.Board); err != nil {
		return err
	}
	allowed := append(slices.Clone(grantableVerbs), entities.VerbRead, "*")
	for n, g := range r.Rules.Grants {
		if len(g.Verbs) == 0 || len(g.To) == 0 {
			return fmt.Errorf(`grant %d: "verbs" and "to" are required`, n+1)
		}
		for _, v := range g.Verbs {
			if !slices.Contains(allowed, v) {
				return fmt.Errorf("grant %d: unknown verb %q; expected one of %s", n+1, Clip(v, 60), strings.Join(allowed, ", "))
			}
		}
		if err := checkScopes(g); err != nil {
			return fmt.Errorf("grant %d: %w", n+1, err)
		}
	}
	return r.Rules.Baseline.Check()
}

// checkScopes rejects a grant whose scopes are none of an installation.
func checkScopes(g entities.Grant) error {
	if len(g.Channels) > 0 && slices.Contains(g.Verbs, entities.VerbRead) {
		return errors.New(`"read" is for the whole installation; expected a grant of its own without scopes`)
	}
	for _, scope := range g.Channels {
		name, ok := strings.CutPrefix(scope, entities.ScopeRuntime)
		if !ok {
			name, ok = strings.CutPrefix(scope, entities.ScopeApplications)
		}
		if !ok {
			name, ok = strings.CutPrefix(scope, entities.ScopeLibraries)
		}
		if !ok || name == "" {
			return fmt.Errorf(`%q is not a runtime, application or library; expected runtime/NAME, application/NAME or library/NAME`, Clip(scope, 60))
		}
	}
	return nil
}

// checkLibrary rejects an invalid library name. The content of the library is checked in the store.
func checkLibrary(r Request) error {
	l := r.Library
	switch {
	case !libraryRE.MatchString(l.Name):
		return fmt.Errorf(`"name" is %q; expected the name of a library`, Clip(l.Name, 60))
	case l.Version < 1 || l.Version > maxLibraryVersion:
		return fmt.Errorf(`"version" is %d; expected a whole number of at least 1`, l.Version)
	case !digestRE.MatchString(l.Digest):
		return fmt.Errorf(`"content" is %q; expected the SHA-256 of the stored content`, Clip(l.Digest, 70))
	}
	return nil
}

const maxLibraryVersion = 1_000_000

var (
	libraryRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	digestRE  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// grantableVerbs lists the verbs that the rules of the installation may name: those of runtimes, its own, and the first publication.
var grantableVerbs = []string{
	protocol.Configure, protocol.Grant, protocol.Drain, protocol.Pause, protocol.Publish, protocol.PublishLibrary, protocol.SignalGive, protocol.Resume, protocol.Restore,
}
