package entities

import (
	"slices"
	"strings"
)

// steering are names of environment variables by which loaders, shells, interpreters and git are told what to run, where
// to find it or how to read it; one that ends in * stands for all that begin so. They are those that sudo takes away from
// commands (its env_delete), and what came later.
var steering = []string{
	"PATH", "HOME", "SHELL", "IFS", "CDPATH", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "GLOBIGNORE", "PS4", "PROMPT_COMMAND",
	"FPATH", "NULLCMD", "READNULLCMD", "ZDOTDIR", "TMPPREFIX",
	"LD_*", "DYLD_*", "_RLD*", "LDR_*", "LIBPATH", "SHLIB_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "GETCONF_DIR", "MALLOC_*", "NLSPATH", "PATH_LOCALE",
	"LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "RESOLV_*",
	"TERMINFO", "TERMINFO_DIRS", "TERMPATH", "TERMCAP", "EDITOR", "VISUAL", "PAGER", "LESSOPEN", "LESSCLOSE",
	"PYTHON*", "PERL5*", "PERLLIB", "PERLIO_DEBUG", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "CORECLR_*", "DOTNET_STARTUP_HOOKS",
	"GIT_*", "SSH_ASKPASS", "SUDO_*", "KRB5_CONFIG", "KRB5_KTNAME", "OPENSSL_CONF", "OPENSSL_MODULES", "XDG_CONFIG_HOME",
}

// SteersPrograms tells whether an environment variable of that name tells loaders, shells and the like what to run. Whoever
// owns a command may set it; who only gives it values may not.
func SteersPrograms(name string) bool {
	return slices.ContainsFunc(steering, func(pattern string) bool { return MatchesName(pattern, name) })
}

// MatchesName tells whether a name is that of a pattern: the same, or with * at the end of the pattern any that begins so.
func MatchesName(pattern, name string) bool {
	prefix, any := strings.CutSuffix(pattern, "*")
	return name == pattern || any && strings.HasPrefix(name, prefix)
}
