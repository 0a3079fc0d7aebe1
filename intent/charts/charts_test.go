package charts_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/tests/charttest"
)

// withoutCredentials has no cache and no credentials but those of a netrc that is given.
func withoutCredentials(t *testing.T, netrc string) charts.Client {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("DOCKER_CONFIG", filepath.Join(dir, "docker"))
	file := filepath.Join(dir, "netrc")
	require.NoError(t, os.WriteFile(file, []byte(netrc), 0o600))
	return charts.Client{Env: func(name string) string { return map[string]string{"NETRC": file}[name] }}
}

// Which version of a repository is wanted.
func TestChartVersionsAreResolvedInARepository_H6(t *testing.T) {
	client := withoutCredentials(t, "")
	repository := charttest.NewRepository(t)
	for _, version := range []string{"1.4.2", "1.4.10", "1.5.0-rc.1", "2.0.0", "v3.1.0", "nonsense"} {
		repository.Add("web", version, charttest.Pack(t, "web", version))
	}
	for wanted, want := range map[string]string{
		"1.4.2": "1.4.2", "^1.4": "1.4.10", "~1.4.0": "1.4.10", "1.x": "1.4.10", ">=1.4.0-0 <2": "1.5.0-rc.1", "*": "v3.1.0", ">=2 <3": "2.0.0",
		"3.1.0": "v3.1.0", "^4": "no version of it that matches ^4",
	} {
		entry, _, err := client.Resolve(t.Context(), charts.RefOf("web", repository.URL, wanted))
		if strings.HasPrefix(want, "no") {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err, wanted)
		require.Equal(t, want, entry.Version, wanted)
	}
	_, _, err := client.Resolve(t.Context(), charts.RefOf("other", repository.URL, "1"))
	require.ErrorContains(t, err, "the repository has no chart other")
}

// A version with build metadata is a tag with an underscore; a tag that is no version, and an artifact that is no chart, are none.
func TestChartVersionsAreResolvedInARegistry_H6(t *testing.T) {
	client := withoutCredentials(t, "")
	registry := charttest.NewRegistry(t)
	for _, version := range []string{"1.0.0", "1.2.0+build.7", "latest"} {
		registry.Push(t, "charts/web", version, charttest.Pack(t, "web", version))
	}
	ref := charts.RefOf("oci://"+registry.Host+"/charts/web", "", "^1.0")
	entry, data, err := client.Resolve(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, "1.2.0+build.7", entry.Version)
	require.Equal(t, charts.Digest(data), entry.Digest)
	same, _, err := client.Resolve(t.Context(), charts.RefOf("web", "oci://"+registry.Host+"/charts/", "^1.0"))
	require.NoError(t, err)
	require.Equal(t, entry, same)
	_, _, err = client.Resolve(t.Context(), charts.RefOf(ref.Chart, "", "^2"))
	require.ErrorContains(t, err, "no version of it that matches ^2")
	_, _, err = client.Resolve(t.Context(), charts.RefOf("oci://"+registry.Host+"/nothing", "", "1"))
	require.ErrorContains(t, err, "404")
}

// What is fetched once is not asked for again, and what lies in the cache with other bytes is.
func TestChartIsFetchedOnce_H6(t *testing.T) {
	client := withoutCredentials(t, "")
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	data := charttest.Pack(t, "web", "1.0.0")
	repository.Add("web", "1.0.0", data)
	remoteEntry := charts.Entry{Chart: "web", Repository: repository.URL, Wanted: "1.0.0", Version: "1.0.0", URL: repository.URL + "/web-1.0.0.tgz", Digest: charts.Digest(data)}
	localEntry := charts.Entry{Chart: "oci://" + registry.Host + "/web", Wanted: "1.0.0", Version: "1.0.0", Digest: registry.Push(t, "web", "1.0.0", charttest.Pack(t, "web", "1.0.0", "a", "b"))}
	for _, entry := range []charts.Entry{remoteEntry, localEntry} {
		_, err := client.Fetch(t.Context(), entry)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"/web-1.0.0.tgz"}, repository.Asked()) // no index: the lock says where it is
	requests := registry.Asked()
	for _, entry := range []charts.Entry{remoteEntry, localEntry} {
		_, err := client.Fetch(t.Context(), entry)
		require.NoError(t, err)
	}
	require.Empty(t, repository.Asked())
	require.Equal(t, requests, registry.Asked())

	kept := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "converge", "charts", strings.TrimPrefix(remoteEntry.Digest, "sha256:")+".tgz")
	require.NoError(t, os.WriteFile(kept, []byte("something else"), 0o600))
	second, err := client.Fetch(t.Context(), remoteEntry)
	require.NoError(t, err)
	require.Equal(t, data, second)
	require.Len(t, repository.Asked(), 1)
}

// Whatever a repository or a registry answers, the bytes are those of the digest, or none.
func TestContentWithAnotherDigestIsRejected_H6_G4(t *testing.T) {
	client := withoutCredentials(t, "")
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	good, evil := charttest.Pack(t, "web", "1.0.0"), charttest.Pack(t, "web", "1.0.0", "templates/evil.yaml", "")
	repository.Add("web", "1.0.0", good)
	repository.Serve("/web-1.0.0.tgz", evil)
	ref := charts.RefOf("web", repository.URL, "1.0.0")
	_, _, err := client.Resolve(t.Context(), ref)
	require.ErrorContains(t, err, "its digest is "+charts.Digest(evil)+", and in the index of the repository it is "+charts.Digest(good))
	_, err = client.Fetch(t.Context(), charts.Entry{Chart: "web", Repository: repository.URL, Wanted: "1.0.0", Version: "1.0.0", URL: repository.URL + "/web-1.0.0.tgz", Digest: charts.Digest(good)})
	require.ErrorContains(t, err, "its digest is "+charts.Digest(evil)+"; expected "+charts.Digest(good))

	digest := registry.Push(t, "web", "1.0.0", good)
	registry.Swap(digest, evil)
	address := "oci://" + registry.Host + "/web"
	_, _, err = client.Resolve(t.Context(), charts.RefOf(address, "", "1.0.0"))
	require.ErrorContains(t, err, charts.Digest(evil))
	_, err = client.Fetch(t.Context(), charts.Entry{Chart: address, Wanted: "1.0.0", Version: "1.0.0", Digest: digest})
	require.ErrorContains(t, err, "its digest is "+charts.Digest(evil)+"; expected "+digest)
}

// An index leads nowhere but to what may be fetched.
func TestIndexURLsStayOnTheRepositoryHost_H6_G4(t *testing.T) {
	client := withoutCredentials(t, "")
	secret := filepath.Join(t.TempDir(), "secret.tgz")
	require.NoError(t, os.WriteFile(secret, charttest.Pack(t, "web", "1.0.0"), 0o600))
	for address, want := range map[string]string{
		"file://" + secret: "file://", "http://charts.example.org/web.tgz": "http://charts.example.org/web.tgz, which is not supported",
		"https://me:secret@charts.example.org/web.tgz": "me:xxxxx@", "ftp://charts.example.org/web.tgz": "not supported", ":": "an invalid address of version 1.0.0",
	} {
		repository := charttest.NewRepository(t)
		repository.List("web", "1.0.0", address, "")
		_, _, err := client.Resolve(t.Context(), charts.RefOf("web", repository.URL, "1.0.0"))
		require.ErrorContains(t, err, want, address)
		require.Equal(t, []string{"/index.yaml"}, repository.Asked())
	}
	repository := charttest.NewRepository(t)
	for text, want := range map[string]string{"[": "not an index of charts", "entries: {web: 1}": "not an index of charts", "a: b": "has no chart web"} {
		repository.Serve("/index.yaml", []byte(text))
		_, _, err := client.Resolve(t.Context(), charts.RefOf("web", repository.URL, "1.0.0"))
		require.ErrorContains(t, err, want)
	}
}

// A public repository cannot have this machine's own services asked.
func TestRemoteHostsCannotRedirectToLoopback_H6_G4(t *testing.T) {
	client := withoutCredentials(t, "")
	local := charttest.NewRepository(t)
	remote := "https://charts.example.org"
	client.HTTP = &http.Client{Transport: roundTripFunc(func(r *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {local.URL + "/admin"}}, Body: http.NoBody, Request: r}
	})}
	_, _, err := client.Resolve(t.Context(), charts.RefOf("web", remote, "1.0.0"))
	require.ErrorContains(t, err, "charts.example.org redirects to "+strings.TrimPrefix(local.URL, "http://")+", which is this machine")
	require.Empty(t, local.Asked())
	client.HTTP = &http.Client{Transport: roundTripFunc(func(r *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"http://charts.example.org/index.yaml"}}, Body: http.NoBody, Request: r}
	})}
	_, _, err = client.Resolve(t.Context(), charts.RefOf("web", remote, "1.0.0"))
	require.ErrorContains(t, err, "expected https://")
}

// roundTripFunc is a network in which every server answers the same.
type roundTripFunc func(*http.Request) *http.Response

func (a roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// Credentials of a host go to that host: neither to another one that an index names nor along a redirect.
func TestCredentialsAreSentOnlyToTheirHost_H6_G5(t *testing.T) {
	client := withoutCredentials(t, "machine 127.0.0.1 login ann password s3cret\n")
	mine, other := charttest.NewRepository(t), charttest.NewRepository(t)
	mine.User, mine.Password = "ann", "s3cret"
	mine.Add("web", "1.0.0", charttest.Pack(t, "web", "1.0.0"))
	_, _, err := client.Resolve(t.Context(), charts.RefOf("web", mine.URL, "1.0.0"))
	require.NoError(t, err)

	// The same name with another port is another server.
	data := charttest.Pack(t, "web", "2.0.0")
	other.Serve("/web.tgz", data)
	mine.List("web", "2.0.0", other.URL+"/web.tgz", "")
	_, got, err := client.Resolve(t.Context(), charts.RefOf("web", mine.URL, "2.0.0"))
	require.NoError(t, err)
	require.Equal(t, data, got)
	mine.List("web", "3.0.0", "moved.tgz", "")
	mine.Move("/moved.tgz", other.URL+"/web.tgz")
	_, _, err = client.Resolve(t.Context(), charts.RefOf("web", mine.URL, "3.0.0"))
	require.NoError(t, err)
	require.Empty(t, other.Seen)
	require.NotEmpty(t, mine.Seen)

	mine.Password = "another"
	_, _, err = client.Resolve(t.Context(), charts.RefOf("web", mine.URL, "1.0.0"))
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "s3cret")
}

// What is too large is not read to its end.
func TestHugeChartsAreRefused_H6_G4(t *testing.T) {
	client := withoutCredentials(t, "")
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	huge := make([]byte, charts.MaxChart+1)
	repository.Add("web", "1.0.0", huge)
	_, _, err := client.Resolve(t.Context(), charts.RefOf("web", repository.URL, "1.0.0"))
	require.ErrorContains(t, err, "it has more than 33554432 bytes")
	registry.Push(t, "web", "1.0.0", huge)
	_, _, err = client.Resolve(t.Context(), charts.RefOf("oci://"+registry.Host+"/web", "", "1.0.0"))
	require.ErrorContains(t, err, "it has more than 33554432 bytes")
}

// A registry asks, and gets what `docker login` keeps.
func TestRegistryRequiresCredentials_H6(t *testing.T) {
	client := withoutCredentials(t, "")
	registry := charttest.NewRegistry(t)
	registry.Push(t, "web", "1.0.0", charttest.Pack(t, "web", "1.0.0"))
	registry.User, registry.Password = "ann", "s3cret"
	ref := charts.RefOf("oci://"+registry.Host+"/web", "", "1.0.0")
	_, _, err := client.Resolve(t.Context(), ref)
	require.ErrorContains(t, err, "there are none for it; use docker login")
	require.NoError(t, os.MkdirAll(os.Getenv("DOCKER_CONFIG"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(`{"auths": {"`+registry.Host+`": {"auth": "YW5uOnMzY3JldA=="}}}`), 0o600))
	_, _, err = client.Resolve(t.Context(), ref)
	require.NoError(t, err)
}

// What a lock may say.
func TestLockIsReadStrictly_H6(t *testing.T) {
	entry := "- {chart: web, repository: 'https://c.dev', wanted: '1', version: 1.0.0, url: 'https://c.dev/w.tgz', digest: 'sha256:" + strings.Repeat("0", 64) + "'}\n"
	head := "lockVersion: converge/v1\ncharts:\n"
	lock, err := charts.ParseLock([]byte(head + entry))
	require.NoError(t, err)
	again, err := charts.ParseLock(lock.Bytes())
	require.NoError(t, err)
	require.Equal(t, lock, again)
	for text, want := range map[string]string{
		"": "it is empty", "lockVersion: converge/v9\n": `its lockVersion is "converge/v9"; this Converge supports converge/v1`,
		head + entry + entry: "it is listed twice", head + strings.Replace(entry, "wanted", "want", 1): "field want not found",
		head + strings.Replace(entry, "sha256:0", "sha256:", 1): "invalid digest", head + strings.Replace(entry, "https://c.dev", "file:///etc", 1): "it is not an address",
		head + strings.Replace(entry, "url: 'https://c.dev/w.tgz', ", "", 1): "its url is missing",
	} {
		_, err := charts.ParseLock([]byte(text))
		require.ErrorContains(t, err, want)
	}
}
