package sources

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sops"
)

// encrypted are SOPS-encrypted files, in which the file of a value is searched.
type encrypted []encryptedFile

type encryptedFile struct {
	*sops.File
	name string
	text []byte
	err  error // why it cannot be used; File is then nil
}

func newEncryptedFile(name string, text []byte) encryptedFile {
	f, err := sops.Read(text)
	return encryptedFile{f, name, text, err}
}

// fileOf returns the file of an encrypted value, or else an unusable file that may contain it.
func (all encrypted) fileOf(value string) *encryptedFile {
	i := slices.IndexFunc(all, func(f encryptedFile) bool { return f.err == nil && f.Has(value) })
	if i < 0 {
		i = slices.IndexFunc(all, func(f encryptedFile) bool { return f.err != nil })
	}
	if i < 0 {
		return nil
	}
	return &all[i]
}

// isEncrypted reports whether SOPS encrypted a file. Parse errors are reported elsewhere.
func isEncrypted(text []byte) bool {
	if !bytes.Contains(text, []byte(sops.Field)) || !bytes.Contains(text, []byte("lastmodified")) {
		return false
	}
	var node yaml.Node
	if config.DecodeNode(yaml.NewDecoder(bytes.NewReader(text)), &node) != nil || len(node.Content) == 0 {
		return false
	}
	meta := entry(node.Content[0], sops.Field)
	return entry(meta, "mac") != nil && entry(meta, "lastmodified") != nil
}

// encryptedIn reads the encrypted files of a kustomization. A problem of a file counts only if it became an object.
func encryptedIn(fsys fs.FS, files []string) (all encrypted) {
	for _, name := range files {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err == nil && isEncrypted(text) {
			all = append(all, newEncryptedFile(name, text))
		}
	}
	return all
}

// encrypted accepts an object that SOPS encrypted. It stays encrypted. The object contains its readable fields and the whole file, which
// is decrypted where the object is applied. Only Secrets are accepted, because other kinds are shown to users.
func (c *objectCheck) encrypted(among encrypted) {
	found := sops.FirstSealed(c.fields)
	if !c.mustDecrypt(found) {
		return
	}
	delete(c.fields, sops.Field)
	file := among.fileOf(found)
	if fault := c.decryptionFault(found, file); fault != nil {
		c.Report("", *fault)
		c.object.Encrypted = c.object.Kind == "Secret"
	} else if found != "" {
		c.object.Encrypted, c.sealed = true, string(file.text)
	}
}

// mustDecrypt reports whether Converge must decrypt an object. Custom kinds may have SOPS metadata and cipher text for their own
// controllers.
func (c *objectCheck) mustDecrypt(found string) bool {
	group := c.object.Group
	if sops.Is(c.fields) {
		return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	}
	return found != "" && group == "" && (c.object.Kind == "Secret" || c.object.Kind == "ConfigMap")
}

// decryptionFault returns why an object cannot be decrypted, or nil. An object that is not a Secret may be in the same file as a Secret.
func (c *objectCheck) decryptionFault(found string, file *encryptedFile) *strict.Fault {
	fault := func(message, expected string) *strict.Fault {
		return &strict.Fault{Code: "encrypted", Message: message, Expected: expected}
	}
	switch {
	case file != nil && file.err != nil:
		return fault(fmt.Sprintf("%s is encrypted by SOPS, and cannot be used: %v", file.name, file.err), "")
	case found == "" && c.object.Kind != "Secret":
		return nil
	case found == "":
		return fault("SOPS encrypted nothing in this Secret", `--encrypted-regex "^(data|stringData)$"`)
	case c.object.Kind != "Secret":
		return fault("this is encrypted by SOPS, and its decrypted content would be shown in plans and drift", "a Secret")
	case file == nil:
		return fault("this is encrypted by SOPS, and the file that SOPS encrypted is missing: its MAC covers the whole file",
			"the file itself among manifests, or among the resources of a kustomization")
	}
	if err := file.CheckObject(c.fields); err != nil {
		return fault(err.Error(), "the values of "+file.name)
	}
	return nil
}

// rejectSubstitutions rejects substitutions in encrypted files, because the MAC covers the whole file.
func (c *objectCheck) rejectSubstitutions() {
	for _, text := range c.object.Texts {
		c.Report(text.Path, strict.Fault{Code: "no-substitution", Message: "substitution is not supported in a file that SOPS encrypted, because its MAC covers all of it", Expected: `text without "${{"`})
	}
	c.object.Texts = nil
	c.fields[sops.Field] = c.sealed
}
