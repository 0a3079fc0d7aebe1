package entities

import (
	"fmt"
	"strings"
	"unicode"
)

// ByID begins what stands for a version where a release is named by its id: "@ID".
const ByID = "@"

// ServiceIn is the application and the name of a service that rules of an application name: its own, or "orders/api".
func ServiceIn(application, name string) (of, service string) {
	if other, service, elsewhere := strings.Cut(name, "/"); elsewhere {
		return other, service
	}
	return application, name
}

// dependsOn are the beginnings of the ids that conditions on other services have; the service follows, and after an @ its channel
// when it is another one.
var dependsOn = [...]string{"service-stable/", "version-order/", "static-order/", "capacity-order/"}

// DependsOn is the service that a condition waits for, as rules name it, and its channel, "" for the same, by the id of the
// condition. Ok: it waits for one.
func DependsOn(id string) (service, channel string, ok bool) {
	for _, begin := range dependsOn {
		if name, is := strings.CutPrefix(id, begin); is {
			service, channel, _ = strings.Cut(name, "@")
			return service, channel, true
		}
	}
	return "", "", false
}

// CheckName refuses a name of a person, a group or a thing that could be taken for another one: with characters that cannot
// be seen, letters of more than one script, or letters that only look like those of ASCII. What it accepts is ASCII, or looks
// like no ASCII name.
func CheckName(name string) error {
	if name != strings.TrimSpace(name) {
		return fmt.Errorf("%q has blanks around it", name)
	}
	var of *script
	unlike := false
	for _, r := range name {
		switch {
		case r < unicode.MaxASCII && unicode.IsPrint(r) && !unicode.IsLetter(r):
			continue
		case !unicode.IsPrint(r):
			return fmt.Errorf("%q has a character that cannot be seen (%U)", name, r)
		}
		in := scriptOf(r)
		switch {
		case in == nil:
			return fmt.Errorf("%q has the character %q (%U), which looks like others; expected letters, and digits and signs of ASCII", name, r, r)
		case of != nil && in.name != of.name:
			return fmt.Errorf("%q has letters of %s and of %s; expected those of one script", name, of.name, in.name)
		}
		of, unlike = in, unlike || !strings.ContainsRune(in.alike, r)
	}
	if of != nil && !unlike {
		return fmt.Errorf("%q is written in %s and looks like Latin letters", name, of.name)
	}
	return nil
}

// script is a way to write, and its letters that look like letters of ASCII.
type script struct {
	name   string
	tables []*unicode.RangeTable
	alike  string
}

// scripts are those that living languages are written in, by Unicode's own list (UAX 31, recommended scripts).
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

// latin are the letters of ASCII and those of languages with accents, composed. Unicode has many more that look like them.
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
	if r > unicode.MaxASCII && (!unicode.IsLetter(r) && !unicode.IsMark(r) || wide(r)) {
		return nil
	}
	for n := range scripts {
		if unicode.In(r, scripts[n].tables...) {
			return &scripts[n]
		}
	}
	return nil
}

// wide: a form of another character that is kept for the sake of old encodings.
func wide(r rune) bool { return r >= 0xf900 && r <= 0xffff || r >= 0x1d400 }
