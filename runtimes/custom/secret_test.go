//go:build unix

package custom

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

const hidden = `s3cr3t"<value>`

// No secret leaves by any of the ways out: output, error, object.
func TestSecretsAreRedacted(t *testing.T) {
	t.Setenv("WORKER_TOKEN", hidden)
	env := map[string]entities.Value{"TOKEN": {WorkerEnv: "WORKER_TOKEN"}}
	none := func(v any) {
		t.Helper()
		text, err := json.Marshal(v)
		require.NoError(t, err)
		for _, form := range []string{hidden, `s3cr3t`} {
			require.NotContains(t, string(text), form)
		}
		require.Contains(t, string(text), mask)
	}

	loud := applying(`printf '%s' "${TOKEN%value>}"; printf 'value> and\n'; echo "bad token $TOKEN" >&2; exit 1`)
	loud.Env = env
	out, err := newRuntime(t, t.TempDir(), loud).Apply(t.Context(), web("v1"))
	require.EqualError(t, err, "sh exited 1: bad token ***")
	none(out)
	require.Equal(t, "*** and\n", out.Stdout)

	shown := fetching(entities.FetchStructured, `cat <<'END'
{"objects": [{"name": "s3cr3t\"<value>", "objectType": "t s3cr3t\"\u003cvalue>", "message": "is s3cr3t\"<value>",
 "versions": [{"version": "s3cr3t\"<value>"}, {"version": "v1"}],
 "externalLinks": [{"url": "http://u:s3cr3t\"<value>@host", "name": "s3cr3t\"<value>"}],
 "debugEvents": [{"timestamp": "2026-11-21T10:00:00Z", "message": "s3cr3t\"<value>"}]}]}
END`)
	shown.Env = env
	objects, output, err := newRuntime(t, t.TempDir(), shown).ObserveOutput(t.Context(), web("v1"))
	require.NoError(t, err)
	none(objects)
	require.NotContains(t, strings.ReplaceAll(output.Stdout, "\n", ""), hidden)
	require.Equal(t, "v1", objects[0].Versions[1].Version)

	malformed := fetching(entities.FetchStructured, `printf '%s' '{"objects": [{"name": "a", "objectType": "b", "status": "'; printf '%048d' 0; echo 's3cr3t\"<value>"}]}'`)
	malformed.Env = env
	_, err = newRuntime(t, t.TempDir(), malformed).Observe(t.Context(), web("v1"))
	require.NotContains(t, err.Error(), "s3cr3t", "nor a piece of one that was cut")
	require.Contains(t, err.Error(), mask)
}

// A secret that a program prints in another form, or as a part of something, is removed too.
func TestEncodedSecretsAreRedacted_G5(t *testing.T) {
	const secret = "p@ss/w+rd <1> é"
	for name, encode := range map[string]func(string) string{
		"base64":          func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 of a URL": func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
		"raw base64":      func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
		"hex":             func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":             func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"query":           url.QueryEscape,
		"path":            url.PathEscape,
		"HTML":            html.EscapeString,
		"backwards":       reversed,
	} {
		for _, around := range []string{"", "a", "ab", "abc", "user:"} {
			got := Redact("it is "+encode(around+secret+around)+".", secret)
			require.Contains(t, got, mask, name)
			left := len(got) - len("it is "+mask+".") // what is around it, with a group of base64 on either side
			require.LessOrEqual(t, left, 2*(len(encode(around))+2), "%s: %s", name, got)
		}
	}
	require.Equal(t, "eA== stays", Redact("eA== stays", "x"), "an encoding that is too short would hide other text")
}

func TestMissingSecret(t *testing.T) {
	rt := newRuntime(t, t.TempDir(), entities.CustomRuntime{
		Apply: sh("true"), Env: map[string]entities.Value{"TOKEN": {WorkerEnv: "TEST_NOT_SET"}},
	})
	_, err := rt.Apply(t.Context(), web("v1"))
	require.EqualError(t, err, "runtime local: TOKEN cannot be resolved from the worker's environment variable TEST_NOT_SET, which is not set")
}

// A "secret" as short as a digit must not make a version unrecognisable for ever.
func TestObservedVersionIsNotRedacted(t *testing.T) {
	t.Setenv("WORKER_TOKEN", "1")
	c := fetching(entities.FetchStructured, `echo '{"objects": [{"name": "a1", "objectType": "b", "versions": [{"version": "v1"}]}]}'`)
	c.Env = map[string]entities.Value{"TOKEN": {WorkerEnv: "WORKER_TOKEN"}}
	objects, err := newRuntime(t, t.TempDir(), c).Observe(t.Context(), web("v1"))
	require.NoError(t, err)
	require.Equal(t, "a***", objects[0].Name)
	require.Equal(t, "v1", objects[0].Versions[0].Version)
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		name    string
		secrets []string
		limit   int
		writes  []string
		want    string
	}{
		{"plain", nil, 100, []string{"a", "b\n"}, "ab\n"},
		{"split", []string{"secret"}, 100, []string{"a se", "c", "ret b"}, "a *** b"},
		{"longest first", []string{"pass", "password"}, 100, []string{"password pass"}, "*** ***"},
		{"overlapping", []string{"abcd", "cdef"}, 100, []string{"xabcdefx"}, "x***x"},
		{"prefix only", []string{"secret"}, 100, []string{"secre"}, "secre"},
		{"twice", []string{"ab"}, 100, []string{"ababxab"}, "***x***"},
		{"lines of a key", []string{"-----BEGIN\nabcdefgh\nij"}, 100, []string{"key abcdefgh"}, "key ***"},
		{"nothing", []string{""}, 100, []string{"abc"}, "abc"},
		{"cut after redacting", []string{"0123456789"}, 60, []string{strings.Repeat("x", 100), "0123456789yyy"}, "(the first 92 bytes are left out)\nxxxxxxxx***yyy"},
		{"cut between characters", nil, 51, []string{strings.Repeat("é", 40)}, "(the first 76 bytes are left out)\néé"},
		{"not UTF-8", nil, 100, []string{"a\xffb"}, "a?b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tail := newRedactor(c.secrets).tail(c.limit)
			for _, w := range c.writes {
				_, _ = tail.Write([]byte(w))
			}
			require.Equal(t, c.want, tail.String())
		})
	}
}

// However output is written, cut and interleaved, no secret is in what is kept, and the limit holds.
func TestTailProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[abc]{3,6}`), 1, 3).Draw(t, "secrets")
		writes := rapid.SliceOf(rapid.OneOf(rapid.StringMatching(`[abcx]{0,5}`), rapid.SampledFrom(secrets))).Draw(t, "writes")
		limit := rapid.IntRange(50, 70).Draw(t, "limit")
		r := newRedactor(secrets)
		tail := r.tail(limit)
		for _, w := range writes {
			_, _ = tail.Write([]byte(w))
		}
		got := tail.String()
		_, body, cut := strings.Cut(got, "left out)\n")
		if !cut {
			body = got
			if want := r.text(strings.Join(writes, "")); got != want {
				t.Fatalf("%q when written in pieces, %q as a whole", got, want)
			}
		}
		if len(got) > limit {
			t.Fatalf("%d bytes", len(got))
		}
		for _, s := range secrets {
			if strings.Contains(body, s) {
				t.Fatalf("%q is in %q", s, body)
			}
		}
	})
}

// A service gives values to commands of another application: it cannot replace that one's values, and sets only the variables that it
// allows. Any other one could control what the commands run.
func TestServiceSetsOnlyAllowedVariablesOfARuntime_G5(t *testing.T) {
	rt := newRuntime(t, t.TempDir(), applying(`printenv TARGET SERVICE_MINE APP_PORT`))
	rt.def.Owner = "platform"
	rt.def.Custom.Env = map[string]entities.Value{"TARGET": {Literal: "theirs"}}
	in := web("v1")
	in.Allow = &entities.RuntimeAllow{Env: []string{"APP_*", "TARGET"}}
	in.Payload.Custom.Env = map[string]entities.Value{"TARGET": {Literal: "forged"}, "SERVICE_MINE": {Literal: "mine"}, "APP_PORT": {Literal: "80"}}
	out, err := rt.Apply(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "theirs\nmine\n80\n", out.Stdout)
	for _, name := range []string{
		"PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "PYTHONPATH", "GOFLAGS", "KUBECONFIG", "DOCKER_HOST", "HTTP_PROXY", "MAVEN_OPTS", "AWS_ENDPOINT_URL",
		"TF_CLI_ARGS", "RSYNC_RSH", "MAKEFLAGS", "WEB_MINE", "service_x", "ANY",
	} {
		in.Payload.Custom.Env = map[string]entities.Value{name: {Literal: "/tmp/evil"}}
		_, err := rt.Apply(t.Context(), in)
		require.EqualError(t, err, "service web: runtime local of application platform does not let it set "+name+
			"; it allows SERVICE_*, APP_*, TARGET (allow.env)")
		require.True(t, runtimes.IsPermanent(err))
	}
	in.Allow = nil
	_, err = rt.Apply(t.Context(), in)
	require.ErrorContains(t, err, "does not let it set ANY; it allows SERVICE_* (allow.env)")
	rt.def.Owner = in.Application
	_, err = rt.Apply(t.Context(), in)
	require.NotContains(t, err.Error(), "does not let it set", "whoever publishes the service publishes the commands too")
}

// A variable that is not allowed is given to no command, whether it is set or not.
func TestWorkerEnvironmentIsNotInherited_G5(t *testing.T) {
	t.Setenv("TEMPORAL_API_KEY", hidden)
	c := applying(`printenv STOLEN`)
	c.Env = map[string]entities.Value{"STOLEN": {WorkerEnv: "TEMPORAL_API_KEY"}}
	_, err := newRuntime(t, t.TempDir(), c).Apply(t.Context(), web("v1"))
	require.EqualError(t, err, "runtime local: STOLEN cannot be resolved from the worker's environment variable TEMPORAL_API_KEY, which this worker does not allow; to allow it, start the worker with --allow-env TEMPORAL_API_KEY")
	t.Setenv("SOPS_AGE_KEY", hidden)
	t.Setenv("SOPS_AGE_KEY_FILE", hidden)
	out, err := newRuntime(t, t.TempDir(), applying(`env; exit 3`)).Apply(t.Context(), web("v1"))
	require.Error(t, err)
	require.Contains(t, out.Stdout, "PVN_SERVICE=")
	require.NotContains(t, out.Stdout, "SOPS_")
}
