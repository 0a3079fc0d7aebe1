package charts

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxIndex bounds the size of an index in bytes; large repositories have tens of millions.
const maxIndex = 128 << 20

// index is the index of a repository.
type index struct {
	Entries map[string][]indexed `yaml:"entries"`
}

type indexed struct {
	Version string   `yaml:"version"`
	URLs    []string `yaml:"urls"`
	Digest  string   `yaml:"digest"`
}

// resolveInRepository finds a chart in a repository by its index.
func (c Client) resolveInRepository(ctx context.Context, r Ref) (Entry, []byte, error) {
	e := Entry{Chart: r.Chart, Repository: r.Repository, Wanted: r.Wanted}
	data, err := c.download(ctx, r.Repository, r.Repository+"/index.yaml", maxIndex)
	if err != nil {
		return e, nil, fmt.Errorf("its index.yaml cannot be read: %w", err)
	}
	index, err := readIndex(data)
	if err != nil {
		return e, nil, err
	}
	found, err := index.find(r)
	if err != nil {
		return e, nil, err
	}
	e.Version = found.Version
	if e.URL, err = found.address(r.Repository); err != nil {
		return e, nil, err
	}
	if data, err = c.download(ctx, r.Repository, e.URL, MaxChart); err != nil {
		return e, nil, fmt.Errorf("%s: %w", e.URL, err)
	}
	e.Digest = Digest(data)
	if indexDigest := "sha256:" + strings.TrimPrefix(found.Digest, "sha256:"); found.Digest != "" && indexDigest != e.Digest {
		return e, nil, fmt.Errorf("%s: its digest is %s, and in the index of the repository it is %s", e.URL, e.Digest, indexDigest)
	}
	return e, data, nil
}

// readIndex parses an index, and returns a panic of the parser as an error.
func readIndex(data []byte) (listed index, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its index.yaml cannot be read: %v", r)
		}
	}()
	if err := yaml.Unmarshal(data, &listed); err != nil {
		return listed, errors.New("its index.yaml is not an index of charts")
	}
	return listed, nil
}

func (x index) find(r Ref) (indexed, error) {
	all := x.Entries[r.Chart]
	if len(all) == 0 {
		return indexed{}, fmt.Errorf("the repository has no chart %s", r.Chart)
	}
	versions := make([]string, 0, len(all))
	for _, one := range all {
		versions = append(versions, one.Version)
	}
	version := newestMatching(versions, r.Wanted)
	for _, one := range all {
		if one.Version == version && version != "" {
			return one, nil
		}
	}
	return indexed{}, fmt.Errorf("the repository has no version of it that matches %s", r.Wanted)
}

// address returns the URL of the chart: relative to the repository, or any URL that can be fetched.
func (x indexed) address(repository string) (string, error) {
	if len(x.URLs) == 0 {
		return "", fmt.Errorf("the index has no address of version %s", x.Version)
	}
	from, err := url.Parse(repository + "/")
	if err != nil {
		return "", err
	}
	u, err := from.Parse(x.URLs[0])
	if err != nil {
		return "", fmt.Errorf("the index has an invalid address of version %s", x.Version)
	}
	if u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())) {
		return "", fmt.Errorf("in the index, version %s is at %s, which is not supported; expected https://", x.Version, u.Redacted())
	}
	return u.String(), nil
}
