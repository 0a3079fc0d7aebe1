package compile

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// This file checks the addons of services, which others read, and the types of addons (D1).

// Bounds of the addons of a service. Every check that receives release data receives the addons, too.
const (
	maxAddons     = 20
	maxAddonBytes = 16 << 10 // as JSON, for all addons together
	maxAddonDepth = 8        // nesting of mappings and lists
)

// defineAddonTypes checks the types of addons, including imported ones. A type without a schema has a nil schema.
func (c *compiler) defineAddonTypes(app *config.Document[config.Application]) {
	for i, t := range app.Spec.AddonTypes {
		at := strict.Index("addonTypes", i)
		if _, twice := c.addonTypes[string(t.Name)]; twice && t.Name != "" {
			c.report(app.Decoder, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("the addon type %q is declared twice", string(t.Name))})
		}
		var schema *sources.Schema
		if t.Schema != nil && !app.Faulty(at+".schema") {
			var wrong []sources.Violation
			schema, wrong = sources.NewSchema(t.Schema.V)
			for _, v := range wrong {
				c.report(app.Decoder, pathTo(at+".schema", t.Schema.V, v.At), strict.Fault{Code: "bad-value", Message: v.Message, Expected: "a JSON Schema without references"})
			}
		}
		c.addonTypes[string(t.Name)] = schema
	}
}

// addons checks the addons of the service.
func (s *serviceCompiler) addons() map[string]entities.Addon {
	all := map[string]entities.Addon{}
	for i, a := range s.Spec.Addons {
		at := strict.Index("addons", i)
		if _, twice := all[string(a.Name)]; twice {
			s.report(s.Decoder, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("the service has two addons %q", string(a.Name))})
		}
		addon := entities.Addon{Type: string(a.Type)}
		if a.Value != nil {
			addon.Value = a.Value.V
			s.plainValue(at+".value", addon.Value, 1)
		}
		s.addonType(at, addon)
		if a.Name != "" && !s.Faulty(at+".name") {
			all[string(a.Name)] = addon
		}
	}
	if len(s.Spec.Addons) > maxAddons {
		s.report(s.Decoder, "addons", strict.Fault{Code: "too-large", Message: fmt.Sprintf("the service has %d addons", len(s.Spec.Addons)), Expected: fmt.Sprintf("at most %d", maxAddons)})
	}
	if text, err := json.Marshal(all); err == nil && len(text) > maxAddonBytes {
		s.report(s.Decoder, "addons", strict.Fault{Code: "too-large", Message: fmt.Sprintf("the addons of the service have %d bytes", len(text)), Expected: fmt.Sprintf("at most %d", maxAddonBytes)})
	}
	return all
}

// addonType validates an addon against its type. It rejects an undeclared type: a misspelt type would never be validated, and consumers
// that look for the correct one would not find it.
func (s *serviceCompiler) addonType(at string, addon entities.Addon) {
	schema, declared := s.addonTypes[addon.Type]
	if !declared {
		if app := s.config.Application; !s.partial && !s.Faulty(at+".type") && !app.Faulty("addonTypes") && s.Has(at+".type") {
			fault := strict.Unknown("unknown-addon-type", fmt.Sprintf("there is no addon type %q", addon.Type), addon.Type, strict.Keys(s.addonTypes))
			if len(s.addonTypes) == 0 {
				fault.Expected = `a type in "addonTypes" of the application, or of a library that it imports`
			}
			s.report(s.Decoder, at+".type", fault)
		}
		return
	}
	at += ".value"
	if schema == nil || s.Faulty(at) {
		return
	}
	value := addon.Value
	if value == nil {
		value = map[string]any{}
	}
	for _, v := range schema.Violations(value) {
		s.report(s.Decoder, pathTo(at, value, v.At), strict.Fault{Code: "against-schema", Message: v.Message, Expected: "a value that the schema of " + addon.Type + " allows"})
	}
}

// pathTo returns the path for a list of keys and indexes.
func pathTo(at string, value any, steps []string) string {
	for _, step := range steps {
		switch v := value.(type) {
		case map[string]any:
			at, value = strict.Key(at, step), v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return at
			}
			at, value = strict.Index(at, i), v[i]
		}
	}
	return at
}

// plainValue rejects values that different readers of an addon could interpret differently, and texts that look like substitutions.
func (s *serviceCompiler) plainValue(at string, value any, depth int) {
	if depth > maxAddonDepth {
		s.report(s.Decoder, at, strict.Fault{Code: "too-large", Message: fmt.Sprintf("this is more than %d levels deep", maxAddonDepth), Expected: "a flatter value"})
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range strict.Keys(v) {
			s.plainValue(strict.Key(at, key), v[key], depth+1)
		}
	case []any:
		for i, item := range v {
			s.plainValue(strict.Index(at, i), item, depth+1)
		}
	case string:
		switch {
		case config.HasSubstitution(v):
			s.noSubstitution(s.Decoder, at, "an addon", v)
		case strings.ContainsRune(v, 0):
			s.report(s.Decoder, at, strict.Fault{Code: "bad-value", Message: "this text contains a NUL", Expected: "text without"})
		}
	case int64, uint64, float64:
		if number, _ := strconv.ParseFloat(fmt.Sprint(v), 64); math.Abs(number) > config.MaxInt {
			s.report(s.Decoder, at, strict.Fault{Code: "bad-value", Message: "this number is too large", Expected: "at most 2^53 - 1"})
		}
	}
}
