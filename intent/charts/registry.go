package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	dockercredentials "oras.land/oras-go/v2/registry/remote/credentials"
)

// chartLayer is the media type of the chart archive in a Helm artifact.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

const (
	maxManifest = 1 << 20
	maxTags     = 100_000
)

// parseRepository returns the repository of a registry address, which has no version.
func parseRepository(address string) (*remote.Repository, error) {
	repository, err := remote.NewRepository(strings.TrimPrefix(address, ociPrefix))
	if err == nil && repository.Reference.Reference != "" {
		err = errors.New(`it contains a version, which belongs in "version"`)
	}
	return repository, err
}

// open connects to a repository of a registry with the credentials of `docker login`. Connections without TLS are only allowed to this
// machine.
func (c Client) open(address string) (*remote.Repository, error) {
	repository, err := parseRepository(address)
	if err != nil {
		return nil, err
	}
	creds, err := dockercredentials.NewStoreFromDocker(dockercredentials.StoreOptions{})
	if err != nil {
		return nil, err
	}
	from, err := url.Parse(ociPrefix + repository.Reference.Host())
	if err != nil {
		return nil, err
	}
	repository.PlainHTTP = Loopback(from.Hostname()) && c.HTTP == nil
	repository.MaxMetadataBytes = maxManifest
	repository.Client = &auth.Client{Client: c.restrictedClient(from, nil), Cache: auth.NewCache(), Credential: dockercredentials.Credential(creds)}
	return repository, nil
}

// resolveInRegistry finds a chart by the tags of a repository.
func (c Client) resolveInRegistry(ctx context.Context, r Ref) (Entry, []byte, error) {
	e := Entry{Chart: r.Chart, Wanted: r.Wanted}
	repository, err := c.open(r.Chart)
	if err != nil {
		return e, nil, err
	}
	tag, err := tagOf(ctx, repository, r.Wanted)
	if err != nil {
		return e, nil, registryError(err)
	}
	layer, err := chartOf(ctx, repository, tag)
	if err != nil {
		return e, nil, registryError(err)
	}
	e.Version, e.Digest = strings.ReplaceAll(tag, "_", "+"), layer.Digest.String()
	if !digestRE.MatchString(e.Digest) {
		return e, nil, fmt.Errorf("%s names the chart by %s; expected sha256", tag, layer.Digest.Algorithm())
	}
	data, err := c.blob(ctx, r.Chart, e.Digest)
	if err == nil {
		err = Check(data, e.Digest)
	}
	return e, data, err
}

// registryError converts an error of a registry to a message.
func registryError(err error) error {
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return errors.New("the registry requires credentials, and there are none for it; use docker login or helm registry login")
	}
	return withoutURL(err)
}

// tagOf returns the tag of the newest matching version. Tags cannot contain a plus sign; Helm replaces it by _.
func tagOf(ctx context.Context, repository *remote.Repository, wanted string) (string, error) {
	var versions []string
	err := repository.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			versions = append(versions, strings.ReplaceAll(tag, "_", "+"))
		}
		if len(versions) > maxTags {
			return fmt.Errorf("it has more than %d tags", maxTags)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	version := newestMatching(versions, wanted)
	if version == "" {
		return "", fmt.Errorf("the registry has no version of it that matches %s", wanted)
	}
	return strings.ReplaceAll(version, "+", "_"), nil
}

// chartOf returns the chart archive of a tag.
func chartOf(ctx context.Context, repository *remote.Repository, tag string) (found ocispec.Descriptor, err error) {
	at, err := repository.Resolve(ctx, tag)
	if err != nil {
		return found, err
	}
	if at.Size > maxManifest {
		return found, fmt.Errorf("its manifest has more than %d bytes", maxManifest)
	}
	data, err := content.FetchAll(ctx, repository, at)
	if err != nil {
		return found, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return found, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	for _, layer := range manifest.Layers {
		if layer.MediaType == chartLayer {
			return layer, nil
		}
	}
	return found, fmt.Errorf("%s is not a chart: it has no layer of type %s", tag, chartLayer)
}

// blob fetches the content of a digest from a repository. The caller verifies the bytes.
func (c Client) blob(ctx context.Context, address, digest string) ([]byte, error) {
	repository, err := c.open(address)
	if err != nil {
		return nil, err
	}
	described, err := repository.Blobs().Resolve(ctx, digest)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, fmt.Errorf("%s no longer has the digest %s", address, digest)
	}
	if err != nil {
		return nil, registryError(err)
	}
	if described.Size > MaxChart {
		return nil, fmt.Errorf("it has more than %d bytes", MaxChart)
	}
	body, err := repository.Blobs().Fetch(ctx, described)
	if err != nil {
		return nil, registryError(err)
	}
	defer body.Close() // read-only
	return bounded(body, MaxChart)
}
