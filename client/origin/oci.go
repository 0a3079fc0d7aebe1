package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxManifest is the limit of manifests and signatures, in bytes.
const maxManifest = 1 << 20

// artifact is a tag or a digest in a repository of an OCI registry, and a directory in its content.
type artifact struct {
	name       string // as the user wrote it
	repository string // with its host
	reference  string // a tag or a digest
	path       string // of the configuration, with slashes; empty: the root
	key        string // the file of the public key that must have signed it; empty: none
	cache      cacheDir
}

// parseArtifact parses HOST/REPOSITORY:TAG//PATH?key=FILE, or @DIGEST instead of the tag.
func parseArtifact(text string) (Source, error) {
	invalid := func(what string) error {
		return fmt.Errorf("%s%s: %s; expected oci://HOST/REPOSITORY:TAG//PATH?key=FILE, or @sha256:… instead of the tag", artifactPrefix, withoutSecrets("://" + text)[3:], what)
	}
	base, rawQuery, _ := strings.Cut(text, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, invalid("the parameters after ? are invalid")
	}
	a := &artifact{name: artifactPrefix + text, key: query.Get("key")}
	if query.Del("key"); len(query) > 0 {
		return nil, invalid("only the parameter key is allowed")
	}
	base, subpath, _ := strings.Cut(base, "//")
	if subpath = strings.Trim(subpath, "/"); subpath != "" && (!filepath.IsLocal(subpath) || path.Clean(subpath) != subpath) {
		return nil, invalid("the path is invalid")
	}
	repository, err := remote.NewRepository(base)
	switch {
	case strings.Contains(strings.SplitN(base, "/", 2)[0], "@"):
		return nil, invalid("a password or token in it would be visible to others; log in with docker login or oras login")
	case err != nil:
		return nil, invalid(err.Error())
	case repository.Reference.Reference == "":
		return nil, invalid("it has neither a tag nor a digest")
	}
	a.repository, a.reference, a.path = repository.Reference.Registry+"/"+repository.Reference.Repository, repository.Reference.Reference, subpath
	a.cache, err = cacheDirOf(a.name)
	return a, err
}

func (a *artifact) String() string { return a.name }

// open connects to the repository, with the credentials of `docker login`. Plain HTTP is allowed only on this machine.
func (a *artifact) open() (*remote.Repository, error) {
	repository, err := remote.NewRepository(a.repository)
	if err != nil {
		return nil, err
	}
	known, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, err
	}
	host, err := url.Parse("oci://" + repository.Reference.Host())
	if err != nil {
		return nil, err
	}
	repository.PlainHTTP = loopback(host.Hostname())
	repository.MaxMetadataBytes = maxManifest
	repository.Client = &auth.Client{
		Client: &http.Client{Transport: boundedTransport{http.DefaultTransport}}, Cache: auth.NewCache(), Credential: credentials.Credential(known),
	}
	return repository, nil
}

// Newest resolves the tag.
func (a *artifact) Newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	repository, err := a.open()
	if err != nil {
		return "", a.wrapError("read", err)
	}
	found, err := repository.Resolve(ctx, a.reference)
	return found.Digest.String(), a.wrapError("read", err)
}

func (a *artifact) wrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, a.name, err)
}

// Fetch resolves the tag and downloads the content of that digest; the signature is verified first.
func (a *artifact) Fetch(ctx context.Context, since Since) (Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	tree, err := a.fetch(ctx, since)
	return tree, a.wrapError("fetch", err)
}

func (a *artifact) fetch(ctx context.Context, since Since) (tree Tree, err error) {
	repository, err := a.open()
	if err != nil {
		return tree, err
	}
	found, err := repository.Resolve(ctx, a.reference)
	if err != nil {
		return tree, err
	}
	if err := a.verifySignature(ctx, repository, found.Digest); err != nil {
		return tree, err
	}
	manifest, err := manifestOf(ctx, repository, found)
	if err != nil {
		return tree, err
	}
	layer, err := layerOf(manifest)
	if err != nil {
		return tree, err
	}
	root, err := a.cache.replace(func(dir string) error { return a.unpack(ctx, repository, layer, dir) })
	if err != nil {
		return tree, err
	}
	tree = Tree{
		State: found.Digest.String(), Dir: filepath.Join(root, filepath.FromSlash(a.path)), Root: root,
		Origin: protocol.Origin{Path: a.repository + "//" + a.path, Commit: found.Digest.String()},
	}
	if since == nil || since(tree.Dir) != tree.Origin.Commit {
		tree.Causes = Causes([]string{a.cause(found.Digest, manifest)}, false)
	}
	return tree, nil
}

// cause is one line: the digest, the tag, and the commit that its annotation names.
func (a *artifact) cause(is godigest.Digest, m ocispec.Manifest) string {
	line := is.Encoded()[:12]
	if a.reference != is.String() {
		line += " " + a.reference
	}
	if revision := m.Annotations[ocispec.AnnotationRevision]; revision != "" {
		line += " of " + entities.Visible(revision)
	}
	return line
}

// manifestOf reads the manifest of a digest.
func manifestOf(ctx context.Context, repository *remote.Repository, of ocispec.Descriptor) (m ocispec.Manifest, err error) {
	if of.Size > maxManifest {
		return m, fmt.Errorf("its manifest has more than %d MiB", maxManifest>>20)
	}
	data, err := content.FetchAll(ctx, repository, of)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	return m, err
}

// layerOf is the single archive of an artifact.
func layerOf(m ocispec.Manifest) (found ocispec.Descriptor, err error) {
	n := 0
	for _, layer := range m.Layers {
		if strings.HasSuffix(layer.MediaType, "tar+gzip") || strings.HasSuffix(layer.MediaType, ".tar.gzip") {
			found, n = layer, n+1
		}
	}
	switch {
	case n != 1:
		return found, fmt.Errorf("it has %d layers that are tar+gzip; expected one", n)
	case found.Size > maxDownload:
		return found, errTooLarge
	}
	return found, nil
}

func (a *artifact) unpack(ctx context.Context, repository *remote.Repository, layer ocispec.Descriptor, dir string) error {
	body, err := repository.Blobs().Fetch(ctx, layer)
	if err != nil {
		return err
	}
	defer body.Close() // opened for reading only
	verified := content.NewVerifyReader(body, layer)
	if err := unpack(ctx, verified, dir, a.path); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, verified); err != nil {
		return err
	}
	if err := verified.Verify(); err != nil {
		return errors.Join(errors.New("its content does not match its digest"), err)
	}
	return nil
}
