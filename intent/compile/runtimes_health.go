package compile

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/expression"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// healthRules checks the expressions of a runtime that evaluate the health of kinds (H3).
func (c *compiler) healthRules(doc *config.Document[config.Runtime], given []config.KindHealth) (rules []entities.HealthRule) {
	seen := map[[2]string]int{}
	for n, k := range given {
		at := fmt.Sprintf("kubernetes.health[%d]", n)
		if first, twice := seen[[2]string{k.Group, k.Kind}]; twice {
			c.report(doc.Decoder, at+".kind", strict.Fault{
				Code: "bad-value", Message: fmt.Sprintf("%s already has expressions, at kubernetes.health[%d]", k.Kind, first), Expected: "one entry for each kind",
			})
			continue
		}
		seen[[2]string{k.Group, k.Kind}] = n
		rule := entities.HealthRule{Group: k.Group, Kind: k.Kind, Current: k.Current, Failed: k.Failed, InProgress: k.InProgress, Suspended: k.Suspended}
		_, faults := expression.NewHealth(rule)
		for _, field := range strict.Keys(faults) {
			c.report(doc.Decoder, at+"."+field, strict.Fault{
				Code: "bad-value", Message: "invalid expression about an object: " + faults[field].Error(), Expected: "a CEL expression that yields true or false",
			})
		}
		rules = append(rules, rule)
	}
	return rules
}
