"""The emulated engines' one vocabulary: 4,096 byte-level tokens, the same for every model.

Like a real byte-level BPE vocabulary it holds the 256 single bytes, so that any text can be written, and beside
words it holds pieces that end in the middle of a UTF-8 character: whoever cuts, counts or joins a stream by tokens
has to cope with them. Splitting text is in `text`, what comes next in `tokens`.
"""

from collections import Counter
from string import ascii_lowercase

EOS = 0  # <|im_end|>
IM_START = 1
SPECIALS: tuple[str, ...] = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
FIRST_BYTE = len(SPECIALS)
SIZE = 4096

_STEMS = """
the of and to in is it you that he was for on are with as his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will way about
many then them would write like so these her long make thing see him two has look more day could go come did my sound
no most number who over know water than call first people may down side been now find any new work part take get place
made live where after back little only round man year came show every good me give our under name very through just
form much great think say help low line before turn cause same mean differ move right boy old too does tell sentence
set three want air well also play small end put home read hand port large spell add even land here must big high such
follow act why ask men change went light kind off need house picture try us again animal point mother world near build
self earth father head stand own page should country found answer school grow study still learn plant cover food sun
four thought let keep eye never last door between city tree cross since hard start might story saw far sea draw left
late run while press close night real life few stop open seem together next white children begin got walk example ease
paper often always music those both mark book letter until mile river car feet care second group carry took rain eat
room friend began idea fish mountain north once base hear horse cut sure watch color face wood main enough plain girl
usual young ready above ever red list though feel talk bird soon body dog family direct pose leave song measure state
product black short class wind question happen complete ship area half rock order fire south problem piece told knew
pass farm top whole king size heard best hour better true during hundred am remember step early hold west ground
interest reach fast five sing listen six table travel less morning ten simple several toward war lay against pattern
slow center love person money serve appear road map science rule govern pull cold notice voice fall power town fine
certain fly unit lead cry dark machine note wait plan figure star box noun field rest correct able pound done beauty
drive stood contain front teach week final gave green quick develop sleep warm free minute strong special mind behind
clear tail produce fact street inch lot nothing course stay wheel full force blue object decide surface deep moon
island foot yet busy test record boat common gold possible plane age dry wonder laugh thousand ago ran check game
shape yes miss heat snow bed bring sit perhaps fill east weight language among token cache engine model request memory
server stream hello user assistant system batch queue prompt replica balance schedule kernel tensor weather coffee
translate explain
"""
_PIECES = """
ing ed er ly es est tion ation ment ness able ible ful less ous ive al ic ity ance ence ent ant ish ism ist ize ise
un re pre dis mis non over under inter sub super anti auto bio co de en ex fore im in ir mid out semi trans up
th he an nd st en at te on or ar is it as ti hi nt ou ea io le ve co me ri ro li ra ne ll be ma si om ur ch sh wh ph
ck ng qu tr str br cr dr fr gr pr pl bl cl fl gl sl sp sc sk sm sn sw tw ow ew aw ay ey oy ee oo ai au ei ie ui
's 't 're 've 'll 'd 'm
"""
_PUNCTUATION = [". ", ", ", "! ", "? ", ": ", "; ", ".\n", ".\n\n", "\n", "\n\n", " (", ") ", ' "', '" ', " - ", "..."]
_CYRILLIC = """
и в не на я быть он с что а по это она этот к но они мы весь который из у то за свой весь год от так о для ты же все
тот мочь вы человек такой его сказать только или ещё бы себя один как уже до время если сам когда другой вот говорить
наш мой знать стать при чтобы дело жизнь кто первый очень два день её новый рука даже во со раз где там под можно ну
какой после их работа без самый потом надо хотеть ли слово идти большой должен место иметь ничто вода привет мир кэш
"""
_HAN = (
    "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家"
    "十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从今气缓存减少令牌引擎"
)
_EMOJI = "🙂🙃🚀🎉🔥💡📈🧠🤖🌍🌊🍎🐍🦊🎵🏔️⚡✅"


def _numbers() -> list[str]:
    return [f" {n}" for n in range(1000)] + [str(n) for n in range(10, 1000)]


def _fragments() -> list[bytes]:
    """Every pair of letters, and the runs of 3 to 5 that the stems share most: what unknown words are split into."""
    pairs = [f"{a}{b}" for a in ascii_lowercase for b in ascii_lowercase]
    runs = Counter(
        word[start : start + size]
        for word in _STEMS.split()
        for size in (3, 4, 5)
        for start in range(len(word) - size + 1)
    )
    common = sorted(runs, key=lambda run: (-runs[run] * len(run), run))[:600]
    return [piece.encode() for piece in pairs + common]


def _halves() -> list[bytes]:
    """Pieces that begin or end inside a character: lead bytes after a space, tails with text, tails with a new lead."""
    heads = sorted({char.encode()[:n] for char in _HAN + _EMOJI for n in (2, 3) if len(char.encode()) > n})
    tails = sorted({char.encode()[n:] for char in _EMOJI for n in (1, 2) if len(char.encode()) == 4})
    spaced = [b" \xf0\x9f", b" \xd0", b" \xd1", b" \xe4", b" \xe5"]
    joined = [char.encode()[2:] + b"\xe4" for char in _HAN[:40]]
    return heads + tails + spaced + joined


def _words() -> list[bytes]:
    stems = _STEMS.split()
    cyrillic = _CYRILLIC.split()
    texts = [f" {word}" for word in stems] + stems + [f" {word.capitalize()}" for word in stems] + _PIECES.split()
    texts += [f" {word}" for word in cyrillic] + cyrillic
    texts += list(_HAN) + [a + b for a, b in zip(_HAN[::2], _HAN[1::2], strict=False)] + list(_EMOJI) + _PUNCTUATION
    return [text.encode() for text in texts]


def _build() -> tuple[bytes, ...]:
    """Specials, the 256 bytes, words and halves, and numbers up to SIZE; every token's bytes are different."""
    tokens: dict[bytes, None] = {name.encode(): None for name in SPECIALS}
    tokens.update((bytes([value]), None) for value in range(256))
    tokens.update((piece, None) for piece in (*_words(), *_halves(), *_fragments()))
    for number in _numbers():
        if len(tokens) == SIZE:
            break
        tokens[number.encode()] = None
    return tuple(tokens)


TOKENS: tuple[bytes, ...] = _build()
"""The bytes of each token; the special ones stand for themselves."""

IDS: dict[bytes, int] = {piece: index for index, piece in enumerate(TOKENS)}
"""The way back."""
