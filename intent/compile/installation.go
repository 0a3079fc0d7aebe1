package compile

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Rules compiles a file with one document of kind Installation (F4). An error of type Problems lists all problems.
func Rules(fsys fs.FS, name string) (entities.Rules, error) {
	doc, read := config.ReadInstallation(fsys, name)
	c := &compiler{byPosition: map[string]*channelFault{}}
	var rules entities.Rules
	if doc != nil {
		rules = c.rules(doc)
	}
	for _, shared := range c.byPosition { // not for a particular channel
		shared.fault.InChannel = false
	}
	if problems := append(read.Problems(), c.allProblems()...); len(problems) > 0 {
		return entities.Rules{}, problems.Sorted()
	}
	return rules, nil
}

func (c *compiler) rules(doc *config.Document[config.Installation]) (rules entities.Rules) {
	d := identityDecoder{doc.Decoder, "an Installation"}
	if board := doc.Spec.Board; d.Has("board") && !d.Faulty("board") {
		if board == "" || entities.CheckBoard(board) != nil {
			c.report(d.Decoder, "board", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid address %q", board), Expected: "https://HOST"})
		}
		rules.Board = board
	}
	if i := doc.Spec.Identity; i != nil {
		rules.Identity = c.compileIssuer(d, i.Issued)
		rules.Identity.Required, rules.Identity.Bound, rules.Identity.BoundExcept = i.Required, i.Bound, i.BoundExcept
		c.checkPeople(d, "identity.boundExcept", i.BoundExcept, "")
	}
	for n, grant := range doc.Spec.Authorization {
		at := strict.Index("authorization", n)
		c.checkPeople(d, at+".to", grant.To, "")
		if d.Has(at+".runtimes") && len(grant.Runtimes) == 0 && !d.Faulty(at+".runtimes") {
			c.report(d.Decoder, at+".runtimes", strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "at least one; omit the field for everything"})
		}
		if slices.Contains(grant.Verbs, entities.VerbRead) && (d.Has(at+".runtimes") || d.Has(at+".applications") || d.Has(at+".libraries")) {
			c.report(d.Decoder, at+".verbs", strict.Fault{Code: "bad-value", Message: `"read" is for the whole installation`, Expected: "a grant of its own without runtimes, applications and libraries"})
		}
		var scopes []string
		for _, runtime := range grant.Runtimes {
			scopes = append(scopes, entities.ScopeRuntime+string(runtime))
		}
		scopes = append(scopes, c.newApplicationScopes(d, at, grant)...)
		scopes = append(scopes, c.libraries(d, at, grant)...)
		rules.Grants = append(rules.Grants, entities.Grant{Verbs: grant.Verbs, Channels: scopes, To: grant.To})
	}
	rules.Baseline = c.baseline(d, doc.Spec.Baseline)
	c.boundRules(d, rules)
	return rules
}

// rejectMisplaced rejects documents that belong to applications.
func (c *compiler) rejectMisplaced() {
	for _, doc := range c.config.Libraries {
		c.report(doc.Decoder, "kind", strict.Fault{
			Code: "misplaced", Message: "a Library cannot be part of an application",
			Expected: "a separate directory, next to this one or below one whose name begins with a dot; applications name it under imports",
		})
	}
	for _, doc := range c.config.Installations {
		c.report(doc.Decoder, "kind", strict.Fault{
			Code: "misplaced", Message: "an Installation cannot be part of an application", Expected: "a separate file in another directory; set it with: converge admin rules FILE",
		})
	}
}
