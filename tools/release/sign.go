package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// repository is where the project is.
const repository = "https://github.com/converge-engine/converge"

// Files of a signed release. The signature is one that `cosign verify-blob --key` and `openssl dgst -sha256 -verify` (of its decoded content)
// accept.
const (
	signatureName  = sumsName + ".sig"
	provenanceName = "provenance.intoto.jsonl"
)

// signer signs with an ECDSA key on P-256, as cosign does. Equal content has equal signatures (RFC 6979).
type signer struct{ key *ecdsa.PrivateKey }

// readSigner reads a private key in PEM: PKCS #8 without a password.
func readSigner(file string) (*signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("-key %s: expected a private key in PEM (PKCS #8, without a password)", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("-key %s: %w", file, err)
	}
	key, is := parsed.(*ecdsa.PrivateKey)
	if !is || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("-key %s: it is a %T; expected an ECDSA key on P-256", file, parsed)
	}
	return &signer{key}, nil
}

// Sign implements dsse.Signer.
func (s *signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	return s.key.Sign(nil, sum[:], crypto.SHA256)
}

// KeyID implements dsse.Signer. It is the SHA-256 of the public key in DER.
func (s *signer) KeyID() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	return fmt.Sprintf("%x", sha256.Sum256(der)), err
}

// The statement that a release was built from a commit: in-toto's Statement v1 with SLSA's provenance v1. It has no times, so that it is
// reproducible like what it is about.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     provenance `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	provenance struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string         `json:"buildType"`
		ExternalParameters   map[string]any `json:"externalParameters"`
		ResolvedDependencies []resource     `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder map[string]string `json:"builder"`
	}
)

// sign writes the provenance of the artefacts in a directory, and the signature of their sums.
func (r *release) sign(ctx context.Context, dir string) error {
	sums, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return err
	}
	signature, err := r.signer.Sign(ctx, sums)
	if err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(signature) + "\n"
	if err := os.WriteFile(filepath.Join(dir, signatureName), []byte(text), 0o644); err != nil { //nolint:gosec // artefacts are for everybody
		return err
	}
	body, err := json.Marshal(r.statementOf(string(sums)))
	if err != nil {
		return err
	}
	envelopes, err := dsse.NewEnvelopeSigner(r.signer)
	if err != nil {
		return err
	}
	envelope, err := envelopes.SignPayload(ctx, "application/vnd.in-toto+json", body)
	if err != nil {
		return err
	}
	line, err := json.Marshal(envelope)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, provenanceName), append(line, '\n'), 0o644)) //nolint:gosec // artefacts are for everybody
}

// statementOf says what the files of SHA256SUMS were built from.
func (r *release) statementOf(sums string) statement {
	var subjects []resource
	for line := range strings.Lines(sums) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		subjects = append(subjects, resource{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	var platforms []string
	for _, p := range r.platforms {
		platforms = append(platforms, p.String())
	}
	return statement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: provenance{
			BuildDefinition: buildDefinition{
				BuildType:          repository + "/tools/release",
				ExternalParameters: map[string]any{"version": r.version, "platforms": platforms},
				ResolvedDependencies: []resource{
					{URI: "git+" + repository, Digest: map[string]string{"gitCommit": r.commit}},
					{Name: "go", URI: "https://go.dev/dl/#" + runtime.Version()},
				},
			},
			RunDetails: runDetails{Builder: map[string]string{"id": repository + "/tools/release"}},
		},
	}
}
