"""Identifiers that a parameter cannot have in C: the language, a header or whet reserves them.

A parameter is a struct member and part of an array's name, so it may share its name with a
function; keywords and macros cannot be used.
"""

from __future__ import annotations

import re

KEYWORDS = frozenset(
    # C, and GNU C
    "alignas alignof asm auto bool break case char const constexpr continue default do double else "
    "enum extern false float for goto if inline int long nullptr register restrict return short "
    "signed sizeof static static_assert struct switch thread_local true typedef typeof "
    "typeof_unqual union unsigned void volatile while "
    # C++, which may include model.h
    "and and_eq bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield "
    "compl concept const_cast consteval constinit decltype delete dynamic_cast explicit export "
    "friend mutable namespace new noexcept not not_eq operator or or_eq private protected public "
    "reinterpret_cast requires static_cast template this throw try typeid typename using virtual "
    "wchar_t xor xor_eq".split()
)

MACROS = frozenset(
    # predefined by compilers
    "i386 linux mips sparc sun unix "
    # in standard headers, of glibc and newlib, and in those of POSIX
    "L_ctermid L_cuserid L_tmpnam P_tmpdir alloca assert assert_perror basename bintime_clear "
    "bintime_cmp bintime_isset clearerr clearerr_unlocked complex errno fast_putc fd_set feof "
    "feof_unlocked ferror ferror_unlocked fpclassify fropen fwopen getchar_unlocked getwc "
    "getwc_unlocked getwchar getwchar_unlocked iscanonical iseqsig isfinite isgreater "
    "isgreaterequal isinf isless islessequal islessgreater isnan isnormal issignaling issubnormal "
    "isunordered iszero kill_dependency log2 math_errhandling noreturn offsetof physadr "
    "putchar_unlocked putwc putwc_unlocked putwchar putwchar_unlocked quad sa_handler sa_sigaction "
    "sched_priority setjmp sigaddset sigcontext_struct sigdelset sigemptyset "
    "sigev_notify_attributes sigev_notify_function sigfillset sigismember sigmask signbit signgam "
    "sigsetjmp st_atime st_ctime st_mtime stderr stdin stdout strdupa strndupa strtodf "
    "sve_vl_from_vq sve_vl_valid sve_vq_from_vl tolower toupper tzname unreachable".split()
)

OWNED = re.compile(
    r"_(?!\d)\w*"  # reserved for the implementation: _Bool, __LINE__
    r"|[^a-z]+"  # macros, as a rule: INT32_MAX, EOF, I, AT, WHET_GRAIN
    # families of macros with lower-case letters
    r"|M_[A-Z0-9_]+(l|f\d*x?)"
    r"|(PRI|SCN)[a-zX]([A-Z]+)?\d*"
    r"|(atomic|pthread_cleanup|va)_\w+"
    r"|(is(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|toascii)"
    r"(_l)?"
    r"|si_(addr|addr_lsb|arch|band|call_addr|fd|int|lower|overrun|pid|pkey|ptr|status|stime|syscall"
    r"|timerid|uid|upper|utime|value)"
    r"|(be|le)\d+toh|hto(be|le)\d+"
    r"|(timer|timespec)(add|clear|cmp|isset|sub)"
    r"|(ckd|stdc)_\w+"
    # types of model.h
    r"|u?int\d+_t|size_t"
    # suffixes that generated files append to the program's name, as for arrays of weights
    r"|net|init|train_step|gradients|apply|predict|predict_one|save|load|set_threads|map_weights|t|status_t|label_t"
    r"|(train_step|gradients|predict)_\d+|prefix|train_step_kept|gradients_kept"
    r"|input(_\d+)?(_t)?|samples|sample_t"
)


def reserved(word: str) -> bool:
    return word in KEYWORDS or word in MACROS or OWNED.fullmatch(word) is not None
