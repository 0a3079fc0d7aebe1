package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A long value does not hide what is wrong with it, in any form in which the server prints values. A short value stays.
func TestLongValuesAreShortened(t *testing.T) {
	t.Parallel()
	template := `core.PodTemplateSpec{ObjectMeta:v1.ObjectMeta{Name:"", Labels:map[string]string{"a":"x}: y"}}, Spec:core.PodSpec{Volumes:[]core.Volume(nil), Containers:[]core.Container{core.Container{Name:"m", Image:"busybox"}}}}`
	rows := map[string]string{
		`Job.batch "j" is invalid: spec.template: Invalid value: ` + template + `: field is immutable`:                                  `Job.batch "j" is invalid: spec.template: Invalid value: …: field is immutable`,
		`X "x" is invalid: [a: Invalid value: ` + template + `: field is immutable, b: Invalid value: 7: must be 8, c: Required value]`: `X "x" is invalid: [a: Invalid value: …: field is immutable, b: Invalid value: 7: must be 8, c: Required value]`,
		`Invalid value: "` + strings.Repeat(`a\": b`, 30) + `": must match`:                                                             `Invalid value: …: must match`,
		`Invalid value: {"a": ["` + strings.Repeat("x", 100) + `: "]}: no`:                                                              `Invalid value: …: no`,
		`Unsupported value: "` + strings.Repeat("x", 100) + `": supported values: "A", "B"`:                                             `Unsupported value: …: supported values: "A", "B"`,
		`a: Duplicate value: {"containerPort":` + strings.Repeat("8", 100) + `}`:                                                        `a: Duplicate value: {"containerPort":` + strings.Repeat("8", 100) + `}`,
		`spec.ports[0].port: Invalid value: 80000: must be between 1 and 65535`:                                                         `spec.ports[0].port: Invalid value: 80000: must be between 1 and 65535`,
		`Invalid value: "unclosed: ` + strings.Repeat("x", 100):                                                                         `Invalid value: "unclosed: ` + strings.Repeat("x", 100),
		"": "",
	}
	for text, want := range rows {
		require.Equal(t, want, shortenValues(text))
	}
}

// Whatever the value, what stands before and after it stays.
func TestTheCauseAfterAValueStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		text := shortenValues(`X "x" is invalid: a: Invalid value: ` + value + ": the cause (and the remedy)")
		if !strings.HasPrefix(text, `X "x" is invalid: a: Invalid value: `) || !strings.HasSuffix(text, ": the cause (and the remedy)") {
			t.Fatal(text)
		}
	})
}
