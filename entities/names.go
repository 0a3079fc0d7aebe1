package entities

import (
	"fmt"
	"strings"
	"unicode"
)

// IDPrefix is the prefix of a release id in the place of a version: "@ID".
const IDPrefix = "@"

// ResolveService returns the application and the name of a service that the rules of an application name: its own, or "orders/api".
func ResolveService(application, name string) (of, service string) {
	if other, service, elsewhere := strings.Cut(name, "/"); elsewhere {
		return other, service
	}
	return application, name
}

// dependsOn lists the prefixes of the ids of conditions on other services. The service follows, and after an @ its channel if it differs.
var dependsOn = [...]string{"service-stable/", "version-order/", "static-order/", "capacity-order/"}

// DependencyOf returns the service that a condition waits for, as the rules name it, and its channel ("" for the same), from the
// condition's id. ok is false if it waits for none.
func DependencyOf(id string) (service, channel string, ok bool) {
	for _, begin := range dependsOn {
		if name, is := strings.CutPrefix(id, begin); is {
			service, channel, _ = strings.Cut(name, "@")
			return service, channel, true
		}
	}
	return "", "", false
}

// CheckName rejects a name of a user, a group or an object that could be confused with another one: invisible characters, letters of
// several scripts, or letters that look like ASCII letters. An accepted name is ASCII, or does not look like an ASCII name.
func CheckName(name string) error {
	if name != strings.TrimSpace(name) {
		return fmt.Errorf("%q has leading or trailing blanks", name)
	}
	var of *script
	distinct := false
	for _, r := range name {
		switch {
		case r < unicode.MaxASCII && unicode.IsPrint(r) && !unicode.IsLetter(r):
			continue
		case !unicode.IsPrint(r):
			return fmt.Errorf("%q has an invisible character (%U)", name, r)
		}
		in := scriptOf(r)
		switch {
		case in == nil:
			return fmt.Errorf("%q has the character %q (%U), which can be confused with others; expected letters, or ASCII digits and signs", name, r, r)
		case of != nil && in.name != of.name:
			return fmt.Errorf("%q has letters of %s and of %s; expected letters of one script", name, of.name, in.name)
		}
		of, distinct = in, distinct || !strings.ContainsRune(in.alike, r)
	}
	if of != nil && !distinct {
		return fmt.Errorf("%q is written in %s and looks like Latin letters", name, of.name)
	}
	return nil
}

// script is a writing system, and its letters that look like ASCII letters.
type script struct {
	name   string
	tables []*unicode.RangeTable
	alike  string
}

// scripts are the scripts of living languages, from Unicode's own list (UAX 31, recommended scripts).
var scripts = [...]script{
	{"Latin", []*unicode.RangeTable{latin}, ""},
	{"Cyrillic", []*unicode.RangeTable{unicode.Cyrillic}, "АВЕЅІЈКМНОРСТУХҮЗаеѕіјорсухүһԁԛԝӏ"},
	{"Greek", []*unicode.RangeTable{unicode.Greek}, "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυιγϲϳ"},
	{"Armenian", []*unicode.RangeTable{unicode.Armenian}, "օոսցհզՕՍ"},
	{"Hebrew", []*unicode.RangeTable{unicode.Hebrew}, "סוןט"},
	{"Arabic", []*unicode.RangeTable{unicode.Arabic}, "اه"},
	{"Georgian", []*unicode.RangeTable{unicode.Georgian}, ""},
	{"Devanagari", []*unicode.RangeTable{unicode.Devanagari}, ""},
	{"Bengali", []*unicode.RangeTable{unicode.Bengali}, ""},
	{"Tamil", []*unicode.RangeTable{unicode.Tamil}, ""},
	{"Telugu", []*unicode.RangeTable{unicode.Telugu}, ""},
	{"Thai", []*unicode.RangeTable{unicode.Thai}, ""},
	{"Chinese, Japanese or Korean", []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo}, ""},
}

// latin is the ASCII letters and those of languages with accents, composed. Unicode has many more that look like them.
var latin = &unicode.RangeTable{R16: []unicode.Range16{
	{'A', 'Z', 1},
	{'a', 'z', 1},
	{'À', 'Ö', 1},
	{'Ø', 'ö', 1},
	{'ø', 'İ', 1},
	{'Ĵ', 'ķ', 1},
	{'Ĺ', 'ľ', 1},
	{'Ł', 'ň', 1},
	{'Ŋ', 'ž', 1},
	{'Ơ', 'ơ', 1},
	{'Ư', 'ư', 1},
	{'Ș', 'ț', 1},
	{'Ḁ', 'ẙ', 1},
	{'Ạ', 'ỹ', 1},
}}

func scriptOf(r rune) *script {
	if r > unicode.MaxASCII && (!unicode.IsLetter(r) && !unicode.IsMark(r) || isCompatibilityForm(r)) {
		return nil
	}
	for n := range scripts {
		if unicode.In(r, scripts[n].tables...) {
			return &scripts[n]
		}
	}
	return nil
}

// isCompatibilityForm reports whether a character is a compatibility form of another one, from old encodings.
func isCompatibilityForm(r rune) bool { return r >= 0xf900 && r <= 0xffff || r >= 0x1d400 }
