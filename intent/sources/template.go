package sources

import (
	"errors"
	"strings"
)

// Template is a text in the template of an ApplicationSet of Argo CD, with the parameters of one Application.
type Template struct {
	Text       string
	Parameters map[string]any
	MissingKey string `json:",omitempty"` // error, zero or invalid, as goTemplateOptions have it; empty: invalid
}

// Execute executes the template with the functions that Argo CD offers, without an environment, a network and a clock.
func (t Template) Execute() (string, error) {
	answer, err := render(Order{Template: &t})
	if err != nil {
		return "", err
	}
	text := string(answer.Texts[0].Data)
	if strings.Contains(text, "<no value>") {
		return "", errors.New("no generator sets one of its parameters")
	}
	return text, nil
}
