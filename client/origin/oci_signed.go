package origin

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
)

// Constants of signatures that cosign makes with a key (its SIGNATURE_SPEC.md).
const (
	signatureMedia      = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	signatureType       = "cosign container image signature"
	maxSignatures       = 50
)

var errUnsigned = errors.New("no signature matches that key")

// verifySignature returns an error if the digest has no signature of the key. Without a key it does nothing.
func (a *artifact) verifySignature(ctx context.Context, repository *remote.Repository, is godigest.Digest) error {
	if a.key == "" {
		return nil
	}
	key, err := publicKey(a.key)
	if err != nil {
		return fmt.Errorf("key %s: %w", a.key, err)
	}
	tag, err := repository.Resolve(ctx, string(is.Algorithm())+"-"+is.Encoded()+".sig")
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("it has to be signed by %s, and is not signed", a.key)
	}
	if err != nil {
		return err
	}
	signatures, err := manifestOf(ctx, repository, tag)
	if err != nil {
		return err
	}
	if len(signatures.Layers) > maxSignatures {
		return fmt.Errorf("it has more than %d signatures", maxSignatures)
	}
	for _, layer := range signatures.Layers {
		err := signedBy(ctx, repository, layer, key, is)
		if err == nil || !errors.Is(err, errUnsigned) {
			return err
		}
	}
	return fmt.Errorf("it has to be signed by %s: %w", a.key, errUnsigned)
}

// signedBy verifies one signature and its content.
func signedBy(ctx context.Context, repository *remote.Repository, layer ocispec.Descriptor, key *ecdsa.PublicKey, is godigest.Digest) error {
	signature, err := base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
	if layer.MediaType != signatureMedia || err != nil || layer.Size > maxManifest {
		return errUnsigned
	}
	text, err := content.FetchAll(ctx, repository.Blobs(), layer)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if !ecdsa.VerifyASN1(key, sum[:], signature) {
		return errUnsigned
	}
	var payload struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(text, &payload); err != nil || payload.Critical.Type != signatureType || payload.Critical.Image.Digest != is.String() {
		return errUnsigned // it signs another digest
	}
	return nil
}

// publicKey reads an ECDSA key in PEM, as cosign generate-key-pair writes it.
func publicKey(file string) (*ecdsa.PublicKey, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the person names it
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is not a PEM file")
	}
	read, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, is := read.(*ecdsa.PublicKey)
	if !is {
		return nil, fmt.Errorf("it is a %T; expected an ECDSA key", read)
	}
	return key, nil
}
