package job

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// longestPrefix leaves room for the suffix: a Job's name is a label value of its pods, at most 63.
const longestPrefix = 45

// name makes a Job's name: always the same one for One, else a new one.
func name(prefix, one string) string {
	suffix := strings.ToLower(rand.Text()[:10])
	if one != "" {
		sum := sha256.Sum256([]byte(one))
		suffix = hex.EncodeToString(sum[:6])
	}
	return label(prefix) + "-" + suffix
}

// label makes text fit into a name: lower case letters, digits and single dashes.
func label(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	made := b.String()
	made = strings.Trim(made[:min(len(made), longestPrefix)], "-")
	if made == "" || made[0] >= '0' && made[0] <= '9' {
		return strings.TrimSuffix("converge-"+made, "-")
	}
	return made
}

// digest tells requests apart by all that their Jobs would differ in. Values of secrets are left out:
// a digest can be guessed at.
func (r Request) digest() string {
	secrets := map[string]string{}
	for name := range r.Secrets {
		secrets[name] = ""
	}
	r.Secrets = secrets
	text, err := json.Marshal(r)
	if err != nil {
		return "" // cannot happen: there is nothing in it that JSON cannot hold
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
